"""The server: the round loop, an experiment's plan, a training session."""
