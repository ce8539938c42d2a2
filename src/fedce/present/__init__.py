"""What people see of runs, data and studies: the terminal, pages, and a page that follows a run."""
