"""Decides what the client with a key may do: its rights, its quotas, and the record of what it did."""
