"""Decides which clients may connect, by their keys."""
