"""Reads the records of a range, and reports those that are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import chain
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar, cast, get_args

import pyarrow as pa

from quoth.batch import Batch, StoredBatch
from quoth.message import Gap, Message
from quoth.spark.connections import TIMEOUT_S, client
from quoth.spark.source.arrow import record_batches
from quothwire import batch as wire
from quothwire.errors import NotFound, error

Decode = Literal["arrow", "batches", "messages"]
COLUMNS = ("offset", "timestamp", "key", "value")
"""The columns of Arrow tables by default."""
Reason = Literal["trimmed", "damaged", "recreated", "deleted"]
"""The reasons of a `quoth.Gap`, and ``deleted`` for a topic that does not exist any more."""

_WHY = {
    "trimmed": ("unknown_record", "were removed by retention or a trim before they were read"),
    "damaged": ("damaged", "cannot be read: their bytes do not check"),
    "deleted": ("unknown_topic", "are gone: the topic was deleted"),
    "recreated": ("unknown_topic", "are gone: the topic was deleted, and made anew"),
}
"""The code of the error, and what happened to the records."""
_PLANNED = "they were there when the range was planned: plan anew, behind them if they are damaged"

Rows = TypeVar("Rows", bound=Sized)


class TopicRange(NamedTuple):
    """The records of a topic's log above the pointer `after`, up to `until`, which is included.

    url: the broker. log: the id of the topic's log. records: their exact number. bytes: about their stored
    bytes. key: the path of the key file, on all executors; None for a broker without keys. A repeated task
    gets the same range, so (topic, log, after, until) is a name for idempotent effects.
    """

    url: str
    topic: str
    log: int
    after: int
    until: int
    records: int
    bytes: int
    key: str | None = None


class DataLoss(NamedTuple):
    """Lost records of a topic after one pointer and before another.

    next: 0 if no record follows them yet. records: their number, -1 if it is unknown.
    """

    topic: str
    after: int
    next: int
    records: int
    reason: Reason

    def __str__(self) -> str:
        count = "records" if self.records < 0 else f"{self.records} records"
        end = f" and before {self.next}" if self.next else ""
        return f"topic {self.topic!r}: {count} after {self.after}{end} {_WHY[self.reason][1]}"


Lose = Callable[[DataLoss], None]
"""Handles a loss; it may raise."""


def refuse(loss: DataLoss, hint: str = _PLANNED) -> NoReturn:
    """Raise a loss as `NotFound` or `Damaged`."""
    raise error(_WHY[loss.reason][0], str(loss), hint)


def into(losses: list[DataLoss]) -> Lose:
    """Return a handler that appends losses to a list, and raises `NotFound` if the whole topic is gone."""

    def lose(loss: DataLoss) -> None:
        if loss.reason in ("deleted", "recreated"):
            refuse(loss)
        losses.append(loss)

    return lose


class RangeReader:
    """Reads a range once, over this process's connection to its broker, one fetch ahead.

    lose: handles missing records, so that records read and records lost add up to the range; by default it
    raises `NotFound` or `Damaged`. timeout: see `connections.client`.
    """

    def __init__(self, range_: TopicRange, lose: Lose = refuse, timeout: float = TIMEOUT_S) -> None:
        self._range = range_
        self._lose = lose
        self._client = client(range_.url, timeout, range_.key)
        self._missing = range_.records
        self._gaps: list[DataLoss] = []
        self._gone: Reason | None = None

    def arrow(self, columns: Sequence[str] = COLUMNS) -> Iterator[pa.RecordBatch]:
        """Read pyarrow RecordBatches with these columns."""
        one = self._range
        return self._counted(record_batches(self._stored(), columns, one.after, one.until, one.topic))

    def batches(self) -> Iterator[Batch]:
        """Read batches, as `Client.batches` does."""
        return self._counted(self._decoded())

    def messages(self) -> Iterator[Message]:
        """Read messages, as `Client.read` does."""
        return chain.from_iterable(self.batches())

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
            self._gaps.append(DataLoss(gap.topic, gap.after, gap.next, gap.records, cast(Reason, gap.reason)))

    def _counted(self, parts: Iterable[Rows]) -> Iterator[Rows]:
        """Yield batches; reports losses between them once their number of records is known."""
        for part in parts:
            self._missing -= len(part)
            self._report_counted()
            yield part
        self._report_counted()
        if self._missing > 0:
            self._report_rest()

    def _report_counted(self) -> None:
        for gap in [one for one in self._gaps if one.records >= 0]:
            self._gaps.remove(gap)
            self._report(gap)

    def _report_rest(self) -> None:
        """Report records that are missing at the end; gaps of unknown size may lie outside of the range."""
        one, reason = self._range, self._gone or self._reason()
        loss = DataLoss(one.topic, one.after, one.until + 1, self._missing, reason)
        if self._gaps and reason in ("trimmed", "damaged"):
            loss = self._gaps[0]._replace(records=self._missing)
        self._report(loss)

    def _report(self, loss: DataLoss) -> None:
        """Report the part of a loss that lies in the range: a gap may begin before it and end behind it."""
        lost = min(loss.records, self._missing)
        if lost > 0:
            self._missing -= lost
            begin, end = max(loss.after, self._range.after), min(loss.next, self._range.until + 1)
            self._lose(DataLoss(loss.topic, begin, end, lost, loss.reason))

    def _reason(self) -> Reason:
        """The reason for missing records, by a new count of the range."""
        _, topic, log, after, until, records, *_ = self._range
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
    reader = RangeReader(range_)
    if decode == "arrow":
        return reader.arrow(columns)
    return reader.batches() if decode == "batches" else reader.messages()


def check_decode(decode: str) -> None:
    """Raise `RequestError` ``bad_request`` unless it is a `Decode`."""
    if decode not in get_args(Decode):
        shapes = ", ".join(get_args(Decode))
        raise error("bad_request", f"decode={decode!r} is not known", f"one of {shapes}")
