"""NVFlare (2.9)."""
