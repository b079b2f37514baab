"""How much of a heavy test is run: a little by default, all of it with QUOTH_LONG=1."""

from __future__ import annotations

import os

import pytest

LONG = bool(os.environ.get("QUOTH_LONG"))

long_form = pytest.mark.skipif(not LONG, reason="a long form of what others show, too: QUOTH_LONG=1")
"""Of a test that takes a Java of its own."""


def times(usual: int, long: int) -> int:
    """The number for this run."""
    return long if LONG else usual
