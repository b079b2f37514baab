"""Consumer groups of one log: which records are finished, which are handed out, and the log of that."""
