"""The collections of cyclic garbage in a process of the broker's own: short, and complete now and then."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from quothd.service import garbage
from quothd.service.garbage import OLDEST, GarbageFreezer

LEAST = 5_000


class Node:
    """An object that refers to itself: only a collection frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Freeze from now on, with all that the process has so far left out."""
    monkeypatch.setattr(garbage, "FROZEN_LEAST", LEAST)
    gc.collect()
    gc.freeze()
    before = gc.get_freeze_count()
    freezer = GarbageFreezer()
    monkeypatch.setattr(freezer, "_complete_above", before + LEAST)
    gc.callbacks.append(freezer)
    yield
    gc.callbacks.remove(freezer)
    gc.unfreeze()


def new_cycle() -> weakref.ref[Node]:
    return weakref.ref(Node())


@pytest.mark.usefixtures("frozen")
def test_what_survives_a_collection_is_not_looked_at_again_until_its_number_has_doubled() -> None:
    kept = Node()
    young = new_cycle()
    gc.collect()
    assert young() is None, "garbage is collected as ever"
    old = weakref.ref(kept)
    assert not any(one is kept for one in gc.get_objects(OLDEST))
    del kept
    gc.collect()
    assert old() is not None
    more = [Node() for _ in range(LEAST + 1)]
    gc.collect()
    gc.collect()
    assert old() is None, "a complete collection was due"
    assert not any(one is more[0] for one in gc.get_objects(OLDEST))


@pytest.mark.usefixtures("frozen")
def test_frozen_objects_are_freed_when_nothing_refers_to_them() -> None:
    node = Node()
    gc.collect()
    freed = weakref.ref(node)
    node.__dict__.clear()
    del node
    assert freed() is None


@pytest.mark.usefixtures("frozen")
def test_young_generations_freeze_nothing() -> None:
    before = gc.get_freeze_count()
    kept = [Node() for _ in range(100)]
    gc.collect(0)
    gc.collect(1)
    assert gc.get_freeze_count() <= before
    assert any(one is kept[0] for one in gc.get_objects(OLDEST))
