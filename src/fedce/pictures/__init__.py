"""Pictures of numbers and of images, for pages, files and studies.

matplotlib takes half a second to import, so whoever draws imports `plots`, `study_plots` or `grid` when it draws.
"""
