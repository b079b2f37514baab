"""Executes the requests about the consumer groups of one topic."""
