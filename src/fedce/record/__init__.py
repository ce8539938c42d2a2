"""The run folder, its ledger, its results, and what can be proved of them."""
