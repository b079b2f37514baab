"""Executes the requests of one topic on its log."""
