"""Decides which clients may connect: the keys of the broker and of its clients, at each handshake."""
