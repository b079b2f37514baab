"""The records of a range, where they are used: those that were planned, and any other outcome is a loss."""

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
"""What is made of records as Arrow unless other columns are named."""

T = TypeVar("T")


class TopicRange(NamedTuple):
    """A stretch of a topic's log: the records behind the pointer `after`, up to `until`, which is included.

    url: where its broker is. log: the id of the topic's log. records: how many they are, exactly. bytes:
    about what they take as they are stored. It is the same for every attempt to work on it, so (topic, log,
    after, until) is what tells whether an effect has been there already.
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

    lose: what to do about records that are not there any more, so that what is read and what is lost add up
    to the range; by default that raises `NotFound` or `Damaged`. timeout: see `connections.client`.
    """

    def __init__(self, range_: TopicRange, lose: Lose = refuse, timeout: float = TIMEOUT_S) -> None:
        self._range = range_
        self._lose = lose
        self._client = client(range_.url, timeout)
        self._missing = range_.records
        self._gaps: list[Gap] = []
        self._gone: Reason | None = None

    def arrow(self, columns: Sequence[str] = COLUMNS) -> Iterator[pa.RecordBatch]:
        """The records as pyarrow RecordBatches with these columns."""
        _, topic, _, after, until, *_ = self._range
        found = record_batches(self._stored(), columns, after, until, topic)
        return self._counted(found, _rows)

    def batches(self) -> Iterator[Batch]:
        """The records as batches, as `Client.batches` gives them."""
        return self._counted(self._decoded(), len)

    def messages(self) -> Iterator[Message]:
        """The records one by one, as `Client.read` gives them."""
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
        if gap.reason != "ahead":  # then nothing is there, which is found out in the end
            self._gaps.append(gap)

    def _counted(self, parts: Iterable[T], size: Callable[[T], int]) -> Iterator[T]:
        """The parts. What is lost between them is told once it is known how many records that were."""
        for part in parts:
            self._missing -= size(part)
            if self._gaps:
                self._tell_counted()
            yield part
        self._tell_counted()
        self._tell_rest()

    def _tell_counted(self) -> None:
        for gap in [one for one in self._gaps if one.records >= 0]:
            self._gaps.remove(gap)
            self._tell(gap.after, gap.next, gap.records, cast(Reason, gap.reason))  # see `_note`

    def _tell_rest(self) -> None:
        """Tell what is missing in the end, by gaps of which only this tells whether they are in the range."""
        if self._missing <= 0:
            return
        reason = self._gone or self._looked_up()
        if self._gaps and reason in ("trimmed", "damaged"):
            first = self._gaps[0]
            self._tell(first.after, first.next, self._missing, cast(Reason, first.reason))
        self._tell(self._range.after, self._range.until + 1, self._missing, reason)

    def _tell(self, after: int, next_: int, records: int, reason: Reason) -> None:
        """Tell a loss, as far as it lies in the range: a gap may begin before it and reach beyond it."""
        lost = min(records, self._missing)
        if lost > 0:
            self._missing -= lost
            begin, end = max(after, self._range.after), min(next_, self._range.until + 1)
            self._lose(DataLoss(self._range.topic, begin, end, lost, reason))

    def _looked_up(self) -> Reason:
        """Why records are missing, by what the broker has of the range now."""
        _, topic, log, after, until, records, _ = self._range
        try:
            there = self._client.count(topic, after, until)
        except NotFound:
            return "deleted"
        if there.log != log:
            return "recreated"
        return "trimmed" if there.records < records else "damaged"


def records_of(range_: TopicRange, decode: Decode, columns: Sequence[str] = COLUMNS) -> Iterator[Any]:
    """All records of a range in one of three shapes: RecordBatches, batches or messages.

    Raises `NotFound` or `Damaged` if one of them is not there any more, and as the client's calls do.
    """
    check_decode(decode)
    reader = RangeReader(range_)
    match decode:
        case "arrow":
            return reader.arrow(columns)
        case "batches":
            return reader.batches()
        case "messages":
            return reader.messages()


def check_decode(decode: str) -> None:
    """Raise `RequestError` ``bad_request`` for what is no `Decode`."""
    if decode not in get_args(Decode):
        shapes = ", ".join(get_args(Decode))
        raise error("bad_request", f"decode={decode!r} is not known", f"one of {shapes}")


def _rows(records: pa.RecordBatch) -> int:
    return int(records.num_rows)


def _one(_: object) -> int:
    return 1
