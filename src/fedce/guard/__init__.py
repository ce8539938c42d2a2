"""What tells a bad update from a new one, and what follows from it, around any algorithm."""

from fedce.guard.guarded import PROBATION, Guarded

__all__ = ["PROBATION", "Guarded"]
