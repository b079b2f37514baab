"""Finds and reads stored batches: by the owner of a log, by other threads, by other processes."""
