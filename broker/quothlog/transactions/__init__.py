"""Stages the batches of transactions, and makes them a part of the log."""
