"""How runs, data and studies are shown: in the terminal, on pages, and on a page that follows a run."""
