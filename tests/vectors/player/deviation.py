"""The error of a client that does something else than its session expects."""


class Deviation(Exception):
    """Says, as a sentence for its developer, what a client did otherwise."""
