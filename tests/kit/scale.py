"""How much of a heavy test is run: a little by default, all of it with QUOTH_LONG=1."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

import pytest

LONG = bool(os.environ.get("QUOTH_LONG"))

long_form = pytest.mark.skipif(not LONG, reason="a long form of what others show, too: QUOTH_LONG=1")
"""Of a test that takes a Java of its own, or a measurement."""


T = TypeVar("T")


def some(places: Sequence[T], rng: random.Random, part: int) -> Sequence[T]:
    """One in `part` of the places, chosen at random, in their order; in the long form all of them."""
    return places if LONG else sorted(rng.sample(places, -(-len(places) // part)), key=places.index)


def times(usual: int, long: int) -> int:
    """The number for this run."""
    return long if LONG else usual
