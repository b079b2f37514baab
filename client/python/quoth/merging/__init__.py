"""Reads of several topics at once, merged in the order of time."""
