"""The error of a client that does something else than its session expects."""


class Deviation(Exception):
    """Says, as a sentence for its developer, what a client did otherwise."""


class TooLate(Deviation):
    """Says that a call with a time of its own was over before its request came, as on a busy machine."""
