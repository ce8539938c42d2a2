"""The guard: tells harmful updates from unusual ones, and acts on it, around any algorithm."""

from fedce.guard.guarded import PROBATION, Guarded

__all__ = ["PROBATION", "Guarded"]
