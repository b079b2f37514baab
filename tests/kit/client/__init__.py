"""Clients in tests: accounts of what they sent, event loops, outages that they go through."""
