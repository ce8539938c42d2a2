"""What needs no model: errors, files, the experiment file, names, keys and ranges."""
