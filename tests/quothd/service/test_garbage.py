"""The collections of cyclic garbage in a process of the broker's own: short, and complete now and then."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from kit.clocks import SECOND, ManualClock
from quothd.service.garbage import COMPLETE_S, OLDEST, GarbageFreezer


class Node:
    """An object that refers to itself: only a collection frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def clock() -> Iterator[ManualClock]:
    """Freeze from now on, on a clock of the test."""
    clock = ManualClock()
    freezer = GarbageFreezer(clock.monotonic)
    gc.callbacks.append(freezer)
    yield clock
    gc.callbacks.remove(freezer)
    gc.unfreeze()


def new_cycle() -> weakref.ref[Node]:
    return weakref.ref(Node())


def test_what_survives_a_collection_is_not_looked_at_for_an_hour(clock: ManualClock) -> None:
    kept = Node()
    young = new_cycle()
    gc.collect()
    assert young() is None, "garbage is collected as ever"
    old = weakref.ref(kept)
    assert not any(one is kept for one in gc.get_objects(OLDEST))
    del kept
    gc.collect()
    assert old() is not None
    clock.step(int(COMPLETE_S * SECOND))
    gc.collect()
    assert old() is None
    assert not gc.get_objects(OLDEST), "what has survived is frozen again"


@pytest.mark.usefixtures("clock")
def test_frozen_objects_are_freed_when_nothing_refers_to_them() -> None:
    node = Node()
    gc.collect()
    freed = weakref.ref(node)
    node.__dict__.clear()
    del node
    assert freed() is None


@pytest.mark.usefixtures("clock")
def test_young_generations_freeze_nothing() -> None:
    before = gc.get_freeze_count()
    kept = [Node() for _ in range(100)]
    gc.collect(0)
    gc.collect(1)
    assert gc.get_freeze_count() <= before
    assert any(one is kept[0] for one in gc.get_objects(OLDEST))
