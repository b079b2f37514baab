"""How much of a heavy test is run: a little by default, all of it with QUOTH_LONG=1."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("QUOTH_LONG"))


def times(usual: int, long: int) -> int:
    """The number for this run."""
    return long if LONG else usual
