"""The scale of heavy tests: a part by default, all of it with QUOTH_LONG=1."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

import pytest

LONG = bool(os.environ.get("QUOTH_LONG"))

long_form = pytest.mark.skipif(not LONG, reason="a long form of other tests: QUOTH_LONG=1")
"""Marks a test that starts a Java of its own, or measures."""


T = TypeVar("T")


def some(places: Sequence[T], rng: random.Random, part: int) -> Sequence[T]:
    """Return one in `part` of the places, chosen at random, in their order; all of them in the long form."""
    return places if LONG else sorted(rng.sample(places, -(-len(places) // part)), key=places.index)


def times(usual: int, long: int) -> int:
    return long if LONG else usual
