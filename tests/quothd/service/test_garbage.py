"""The collections of cyclic garbage in a process of the broker's own, tried in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

from kit.deadlines import DEADLINE_S

PRELUDE = """
import gc, weakref
from quothd.service.garbage import COMPLETE_S, OLDEST, shorten_collections

class Node:
    def __init__(self):
        self.me = self

def is_looked_at(node):
    return any(one is node for one in gc.get_objects(OLDEST))

time = [0.0]
shorten_collections(lambda: time[0])
"""


def tried(script: str) -> None:
    """Execute a script that raises if something is not as expected."""
    subprocess.run([sys.executable, "-c", PRELUDE + dedent(script)], check=True, timeout=DEADLINE_S)


def test_what_survives_a_collection_is_not_looked_at_for_an_hour() -> None:
    tried("""
        kept, young = Node(), weakref.ref(Node())
        gc.collect()
        assert young() is None, "garbage is collected as ever"
        old = weakref.ref(kept)
        assert not is_looked_at(kept)
        del kept
        gc.collect()
        assert old() is not None
        time[0] = COMPLETE_S
        gc.collect()
        assert old() is None
        assert not gc.get_objects(OLDEST), "what has survived is frozen again"
    """)


def test_frozen_objects_are_freed_when_nothing_refers_to_them() -> None:
    tried("""
        node = Node()
        gc.collect()
        assert not is_looked_at(node)
        freed = weakref.ref(node)
        node.me = None
        del node
        assert freed() is None
    """)


def test_young_generations_freeze_nothing() -> None:
    tried("""
        kept = Node()
        gc.collect(0)
        gc.collect(1)
        assert is_looked_at(kept)
    """)
