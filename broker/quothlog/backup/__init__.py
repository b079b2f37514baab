"""Copies a log beside its owner, and restores it in a new directory."""
