"""Networks, losses and training: torch and MONAI live here."""
