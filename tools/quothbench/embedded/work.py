"""Work: the levels, the records of a measurement, and what a way to store or to read them has to provide."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from random import Random
from struct import Struct
from time import perf_counter, process_time
from typing import NamedTuple, Self

from quothbench.peers.work import python_library

NUMBER = Struct(">Q")
"""The number of a record: the key in a database, and in front of the value in a plain file."""
MAP_SPARE_BYTES, MAP_FACTOR = 2**30, 32
"""LMDB reserves addresses and no bytes, so it gets plenty of them."""


class StorageLevel(StrEnum):
    """The places that records have reached when a call returns. READ: nothing is written."""

    MEMORY = "memory"
    WRITTEN = "written"
    SYNCED = "synced"
    READ = "read"


PROMISES = {
    StorageLevel.MEMORY: "the process gathers records, a crash of it takes them; one sync at the end",
    StorageLevel.WRITTEN: "the operating system has the records of each call, a power cut may take them",
    StorageLevel.SYNCED: "the records of each call survive a power cut",
    StorageLevel.READ: "from the page cache, opening included; each value is looked at",
}


class Workload:
    """The records of a measurement. values: random bytes. batch: records of a call that takes several."""

    def __init__(self, records: int, size: int, batch: int) -> None:
        drawn = Random(1)
        self.values = [drawn.randbytes(size) for _ in range(records)]
        self.size = size
        self.batch = batch

    @cached_property
    def batches(self) -> list[list[bytes]]:
        """The same values in batches; the last one may be smaller."""
        return [self.values[at : at + self.batch] for at in range(0, len(self.values), self.batch)]

    @property
    def map_bytes(self) -> int:
        """Addresses that LMDB needs at most."""
        return MAP_SPARE_BYTES + MAP_FACTOR * len(self.values) * (self.size + NUMBER.size)


class TimeUsed(NamedTuple):
    """Seconds by the clock, and those of the processor that all threads of this process used."""

    clock: float
    cpu: float

    @classmethod
    def now(cls) -> Self:
        """Return the time at which a measurement begins."""
        return cls(perf_counter(), process_time())

    def until_now(self) -> TimeUsed:
        """Return the time since then."""
        return TimeUsed(perf_counter() - self.clock, process_time() - self.cpu)


Measure = Callable[[Path, Workload], TimeUsed]
"""Stores or reads all records in a directory, once; returns the time it took."""


class QueuefkaFigure(NamedTuple):
    """The nanoseconds that queuefka's benchmark took for a record.

    name: of its row. published: in its README. measured: with Go 1.19 on 2 virtual cores.
    """

    name: str
    published: int | None
    measured: int | None = None


class EmbeddedWay(NamedTuple):
    """A way to store or to read records.

    measure: gets an empty directory, or one that `fill` has filled. library: that it needs. fill: None for
    ways that store. queuefka: its figure for the same.
    """

    system: str
    name: str
    measure: Measure
    library: str = ""
    fill: Measure | None = None
    queuefka: QueuefkaFigure | None = None

    def missing(self) -> str:
        """Return that a library is not installed and how to install it, or nothing."""
        return python_library(self.library) if self.library else ""


class Comparison(NamedTuple):
    """Ways of one level, whose calls take equally many records. The first one is Quoth's.

    batched: calls take a batch, and not a record.
    """

    level: StorageLevel
    ways: tuple[EmbeddedWay, ...]
    batched: bool = False
