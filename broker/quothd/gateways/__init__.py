"""Processes that let clients of other protocols in. Each is a client of the broker as any other.

The broker names their modules and imports none of them.
"""
