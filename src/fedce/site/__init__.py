"""At the hospital: its images behind a protocol, its memory, its key, what it says."""
