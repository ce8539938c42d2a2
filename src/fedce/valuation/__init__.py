"""What contributions are checked against."""
