"""The records of a range, where they are used: exactly those that were planned, or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, NoReturn, get_args

import pyarrow as pa

from quoth.batch import Batch, StoredBatch
from quoth.message import Gap, Message, OnGap
from quoth.spark.arrow import record_batches
from quoth.spark.connections import client
from quothwire import batch as wire
from quothwire.errors import error

Decode = Literal["arrow", "batches", "messages"]
COLUMNS = ("offset", "timestamp", "key", "value")
"""What is made of records as Arrow unless other columns are named."""
_CODES = {"trimmed": "unknown_record", "damaged": "damaged", "recreated": "unknown_topic"}
_PLAN_ANEW = "it was there when the range was planned: plan anew"


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
    """Reads a range over this process's connection to its broker, one fetch ahead.

    on_gap: what to do about records that are not there any more; by default that raises `NotFound`
    ``unknown_record`` or `Damaged`. A topic that was made anew meanwhile always raises ``unknown_topic``.
    unsure: gaps of which only the count of all records tells whether they are in the range.
    """

    def __init__(self, range_: TopicRange, on_gap: OnGap | None = None) -> None:
        self.unsure: list[Gap] = []
        self._range = range_
        self._on_gap = on_gap or refuse

    def stored(self) -> Iterator[StoredBatch]:
        """The stored batches, checked. The first and the last one may reach beyond the range."""
        url, topic, log, after, until, *_ = self._range
        for one in client(url).stored(topic, after=after, until=until, on_gap=self._told):
            if one.log != log:
                raise error("unknown_topic", f"topic {topic!r} was deleted, and made anew", _PLAN_ANEW)
            yield one

    def arrow(self, columns: Sequence[str] = COLUMNS) -> Iterator[pa.RecordBatch]:
        """The records as pyarrow RecordBatches with these columns."""
        _, topic, _, after, until, *_ = self._range
        return record_batches(self.stored(), columns, after, until, topic)

    def batches(self) -> Iterator[Batch]:
        """The records as batches, as `Client.batches` gives them."""
        _, topic, _, after, until, *_ = self._range
        for header, data, log in self.stored():
            skip = max(0, after + 1 - header.base)
            yield Batch.of(topic, wire.decode(data, log), skip).head(until + 1 - header.base - skip)

    def messages(self) -> Iterator[Message]:
        """The records one by one, as `Client.read` gives them."""
        for batch in self.batches():
            yield from self.readable(batch)

    def readable(self, batch: Batch) -> Iterable[Message]:
        """The records of a batch that can be read; those with headers that are none are gaps."""
        return batch.readable(self._told)

    def check_all(self, records: int) -> None:
        """See whether so many are all that there were. Raises `NotFound` or `Damaged`."""
        _, topic, _, after, until, planned, _ = self._range
        if records != planned:
            reason = self.unsure[0].reason if self.unsure else "trimmed"
            refuse(Gap(topic, after, until + 1, planned - records, reason))

    def _told(self, gap: Gap) -> None:
        if gap.records < 0 and gap.reason != "recreated":
            self.unsure.append(gap)
        elif gap.reason == "recreated":
            refuse(gap)
        else:
            self._on_gap(gap)


def records_of(range_: TopicRange, decode: Decode, columns: Sequence[str] = COLUMNS) -> Iterator[Any]:
    """All records of a range in one of three shapes: RecordBatches, batches or messages.

    Raises `NotFound` or `Damaged` if one of them is not there any more, and as the client's calls do.
    """
    reader = RangeReader(range_)
    parts: Iterator[Any]
    size: Callable[[Any], int]
    match check_decode(decode):
        case "arrow":
            parts, size = reader.arrow(columns), _rows
        case "batches":
            parts, size = reader.batches(), len
        case "messages":
            parts, size = reader.messages(), _one
    found = 0
    for part in parts:
        found += size(part)
        yield part
    reader.check_all(found)


def check_decode(decode: str) -> Decode:
    """Return it, or raise `RequestError` ``bad_request``."""
    if decode not in get_args(Decode):
        shapes = ", ".join(get_args(Decode))
        raise error("bad_request", f"decode={decode!r} is not known", f"one of {shapes}")
    return decode  # type: ignore[return-value]


def refuse(gap: Gap) -> NoReturn:
    """Raise what a gap in a range is: its records were promised."""
    count = "some" if gap.records < 0 else str(gap.records)
    text = f"topic {gap.topic!r}: {count} records behind {gap.after} and before {gap.next}: {gap.reason}"
    raise error(_CODES[gap.reason], text, _PLAN_ANEW)


def _rows(records: Any) -> int:
    return int(records.num_rows)


def _one(_: object) -> int:
    return 1
