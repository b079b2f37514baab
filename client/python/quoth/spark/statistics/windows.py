"""Computes the windows of a range, in a task.

The columns are slices of the bytes that the broker sent, and only the lengths of values are read. A window
takes some steps, a record none, but for the hash of a key that is new in its batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quoth.message import Gap, Reason
from quoth.spark.source.data_loss import DataLoss, into
from quoth.spark.source.range_reader import RangeReader, TopicRange
from quoth.spark.statistics import distinct
from quoth.spark.statistics.distinct import EMPTY, Sketch

COLUMNS = ("offset", "ordinal", "key", "value")
_SUMS = ("records", "missing", "value_bytes", "key_bytes", "keyed")


class Window(NamedTuple):
    """The statistics of a topic in a span of time that begins at a multiple of its length.

    start: a pointer. missing: records that could not be read, which are not in `records`; they belong to the
    window in which they end. keyed: records with a key; keys: about the number of distinct ones. largest:
    bytes of key and value of the largest record; largest_pointer: the first of that size. first, last:
    pointers; next_ordinal: the ordinal behind the last record. All three are 0 without records. sketch: of
    the keys, empty if no record can be added any more.
    """

    topic: str
    start: int
    records: int = 0
    missing: int = 0
    value_bytes: int = 0
    key_bytes: int = 0
    keyed: int = 0
    keys: int = 0
    largest: int = 0
    largest_pointer: int = 0
    first: int = 0
    last: int = 0
    next_ordinal: int = 0
    sketch: Sketch = EMPTY

    def joined(self, later: Window) -> Window:
        """Join it with a later part of the same window."""
        if not self.records or not later.records:
            found = self if self.records else later
            return found._replace(missing=self.missing + later.missing)
        sketch = distinct.joined(self.sketch, later.sketch)
        largest = later if later.largest > self.largest else self
        sums = {name: getattr(self, name) + getattr(later, name) for name in _SUMS}
        return later._replace(
            **sums,
            keys=distinct.estimate(sketch),
            largest=largest.largest,
            largest_pointer=largest.largest_pointer,
            first=self.first,
            sketch=sketch,
        )


class RangeWindows(NamedTuple):
    """The result of a task: its windows in order, and the gaps in its range."""

    windows: list[Window]
    gaps: list[Gap]


def windows_in(width: int, range_: TopicRange) -> RangeWindows:
    """Compute the windows of a range, in a worker. width: of a window, in microseconds.

    Only the first and the last one may continue in another range, so only these keep their sketches.
    """
    losses: list[DataLoss] = []
    reader = RangeReader(range_, into(losses))
    found: list[Window] = []
    for batch in reader.arrow(COLUMNS):
        for window in _windows(range_.topic, batch, width):
            if found and found[-1].start == window.start:
                found[-1] = found[-1].joined(window)
            else:
                if len(found) > 1:
                    found[-1] = found[-1]._replace(sketch=EMPTY)
                found.append(window)
    starts = {window.start: window for window in found}
    for loss in losses:
        start = min(loss.next, range_.until) // width * width
        window = starts.get(start, Window(range_.topic, start))
        starts[start] = window._replace(missing=window.missing + loss.records)
    return RangeWindows([starts[start] for start in sorted(starts)], list(map(_gap, losses)))


def _gap(loss: DataLoss) -> Gap:
    return Gap(loss.topic, loss.after, loss.next, loss.records, cast(Reason, loss.reason))  # see `into`


def _windows(topic: str, batch: pa.RecordBatch, width: int) -> Iterator[Window]:
    """The windows of some records."""
    pointers, ordinals = (batch.column(name).to_numpy() for name in ("offset", "ordinal"))
    keys = batch.column("key")
    value_sizes = pc.binary_length(batch.column("value")).to_numpy().astype(np.int64)
    key_sizes = pc.fill_null(pc.binary_length(keys), 0).to_numpy().astype(np.int64)
    starts = pointers // width * width
    bounds = np.flatnonzero(np.diff(starts)) + 1
    for begin, end in pairwise([0, *bounds.tolist(), len(pointers)]):
        sizes = value_sizes[begin:end] + key_sizes[begin:end]
        largest = int(np.argmax(sizes))
        sketch = distinct.sketch(keys[begin:end])
        yield Window(
            topic=topic,
            start=int(starts[begin]),
            records=end - begin,
            value_bytes=int(value_sizes[begin:end].sum()),
            key_bytes=int(key_sizes[begin:end].sum()),
            keyed=end - begin - keys[begin:end].null_count,
            keys=distinct.estimate(sketch),
            largest=int(sizes[largest]),
            largest_pointer=int(pointers[begin + largest]),
            first=int(pointers[begin]),
            last=int(pointers[end - 1]),
            next_ordinal=int(ordinals[end - 1]) + 1,
            sketch=sketch,
        )
