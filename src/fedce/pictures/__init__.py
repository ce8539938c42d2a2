"""Pictures of numbers and of images, for pages, files and studies.

matplotlib takes half a second to import, so `plots`, `study_plots` and `grid` are imported only for drawing.
"""
