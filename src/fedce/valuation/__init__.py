"""Ways to value the sites, and measures that contributions are checked against."""
