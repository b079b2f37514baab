"""Receives requests, decides which topic executes them, and sends the replies. One thread runs all of it."""
