"""Requests on their way through the broker, and the values that threads hand to each other."""
