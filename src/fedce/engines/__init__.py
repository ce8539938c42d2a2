"""Engines carry tasks to sites and replies back."""
