"""Divides the cores of the processor between the processes of a measurement, where the system can do that."""

from __future__ import annotations

import os
from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import NamedTuple


class Cores(NamedTuple):
    """The cores of a broker with its load, and those of what is beside them. Both empty: they share all."""

    broker: frozenset[int] = frozenset()
    beside: frozenset[int] = frozenset()


def divided() -> Cores:
    """Give the last core to what is beside the broker. A machine with a single core shares it."""
    if not hasattr(os, "sched_getaffinity"):
        return Cores()
    *others, last = sorted(os.sched_getaffinity(0))
    return Cores(frozenset(others), frozenset({last})) if others else Cores()


@contextmanager
def on_cores(cores: Set[int]) -> Iterator[None]:
    """Let this thread, and the processes that it starts, use some cores; none stands for any."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
