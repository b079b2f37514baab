"""Reads the records of a range, and reports those that are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args

import pyarrow as pa

from quoth.batch import Batch, StoredBatch
from quoth.message import Gap, Message
from quoth.spark.connections import TIMEOUT_S, client
from quoth.spark.source.arrow import record_batches
from quoth.spark.source.data_loss import DataLoss, Lose, Reason, refuse
from quothwire import batch as wire
from quothwire.errors import NotFound, error

Decode = Literal["arrow", "batches", "messages"]
COLUMNS = ("offset", "timestamp", "key", "value")
"""The columns of Arrow tables by default."""

T = TypeVar("T")


class TopicRange(NamedTuple):
    """The records of a topic's log above the pointer `after`, up to `until`, which is included.

    url: the broker. log: the id of the topic's log. records: their exact number. bytes: about their stored
    bytes. A repeated task gets the same range, so (topic, log, after, until) is a key for idempotent effects.
    """

    url: str
    topic: str
    log: int
    after: int
    until: int
    records: int
    bytes: int


class RangeReader:
    """Reads a range once, over this process's connection to its broker, one fetch ahead.

    lose: handles missing records, so that records read and records lost add up to the range; by default it
    raises `NotFound` or `Damaged`. timeout: see `connections.client`.
    """

    def __init__(self, range_: TopicRange, lose: Lose = refuse, timeout: float = TIMEOUT_S) -> None:
        self._range = range_
        self._lose = lose
        self._client = client(range_.url, timeout)
        self._missing = range_.records
        self._gaps: list[Gap] = []
        self._gone: Reason | None = None

    def arrow(self, columns: Sequence[str] = COLUMNS) -> Iterator[pa.RecordBatch]:
        """Read pyarrow RecordBatches with these columns."""
        _, topic, _, after, until, *_ = self._range
        found = record_batches(self._stored(), columns, after, until, topic)
        return self._counted(found, _rows)

    def batches(self) -> Iterator[Batch]:
        """Read batches, as `Client.batches` does."""
        return self._counted(self._decoded(), len)

    def messages(self) -> Iterator[Message]:
        """Read messages, as `Client.read` does."""
        return self._counted(chain.from_iterable(self._decoded()), _one)

    def _stored(self) -> Iterator[StoredBatch]:
        """The stored batches. The first and the last one may reach beyond the range."""
        _, topic, log, after, until, *_ = self._range
        try:
            for one in self._client.stored(topic, after=after, until=until, on_gap=self._note):
                if one.log != log:
                    self._gone = "recreated"
                    return
                yield one
        except NotFound:
            self._gone = "deleted"

    def _decoded(self) -> Iterator[Batch]:
        _, topic, _, after, until, *_ = self._range
        for header, data, log in self._stored():
            skip = max(0, after + 1 - header.base)
            yield Batch.of(topic, wire.decode(data, log), skip).head(until + 1 - header.base - skip)

    def _note(self, gap: Gap) -> None:
        if gap.reason != "ahead":  # then no record is there, and `_report_rest` finds out why
            self._gaps.append(gap)

    def _counted(self, parts: Iterable[T], size: Callable[[T], int]) -> Iterator[T]:
        """Yield the parts; reports losses between them once their number of records is known."""
        for part in parts:
            self._missing -= size(part)
            if self._gaps:
                self._report_counted()
            yield part
        self._report_counted()
        self._report_rest()

    def _report_counted(self) -> None:
        for gap in [one for one in self._gaps if one.records >= 0]:
            self._gaps.remove(gap)
            self._report(gap.after, gap.next, gap.records, cast(Reason, gap.reason))  # see `_note`

    def _report_rest(self) -> None:
        """Report records that are missing at the end; gaps of unknown size may lie outside of the range."""
        if self._missing <= 0:
            return
        reason = self._gone or self._reason()
        if self._gaps and reason in ("trimmed", "damaged"):
            first = self._gaps[0]
            self._report(first.after, first.next, self._missing, cast(Reason, first.reason))
        self._report(self._range.after, self._range.until + 1, self._missing, reason)

    def _report(self, after: int, next_: int, records: int, reason: Reason) -> None:
        """Report the part of a loss that lies in the range: a gap may begin before it and end behind it."""
        lost = min(records, self._missing)
        if lost > 0:
            self._missing -= lost
            begin, end = max(after, self._range.after), min(next_, self._range.until + 1)
            self._lose(DataLoss(self._range.topic, begin, end, lost, reason))

    def _reason(self) -> Reason:
        """The reason for missing records, by a new count of the range."""
        _, topic, log, after, until, records, _ = self._range
        try:
            there = self._client.count(topic, after, until)
        except NotFound:
            return "deleted"
        if there.log != log:
            return "recreated"
        return "trimmed" if there.records < records else "damaged"


def records_of(range_: TopicRange, decode: Decode, columns: Sequence[str] = COLUMNS) -> Iterator[Any]:
    """Read a range as RecordBatches, batches or messages.

    Raises `NotFound` or `Damaged` for missing records, and as the client's calls do.
    """
    check_decode(decode)
    reader = RangeReader(range_)
    if decode == "arrow":
        return reader.arrow(columns)
    return reader.batches() if decode == "batches" else reader.messages()


def check_decode(decode: str) -> None:
    """Raise `RequestError` ``bad_request`` unless it is a `Decode`."""
    if decode not in get_args(Decode):
        shapes = ", ".join(get_args(Decode))
        raise error("bad_request", f"decode={decode!r} is not known", f"one of {shapes}")


def _rows(records: pa.RecordBatch) -> int:
    return int(records.num_rows)


def _one(_: object) -> int:
    return 1
