"""Plays the broker of a session on a socket, and judges the client that a driver uses."""
