"""Forwards the stored batches of a log or a topic to a broker, each record exactly once."""
