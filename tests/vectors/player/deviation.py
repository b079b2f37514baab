"""The error of a client that does something else than its session expects."""


class Deviation(Exception):
    """What a client did otherwise, as a sentence for its developer."""
