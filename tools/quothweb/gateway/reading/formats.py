"""The formats of records in answers, negotiated by the header Accept.

A gap, records that are gone or damaged, stands in its place between the records. Where a format cannot tell
it, the answer is cut there, so that no client takes it for whole.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack

from quoth.message import Gap, Message
from quothweb.problems import HttpProblem
from quothwire.errors import QuothError
from quothwire.text.record_json import record_object

NDJSON, JSON = "application/x-ndjson", "application/json"
PACKED = "application/msgpack"
BINARY, TEXT = "application/octet-stream", "text/plain"
BATCHES = "application/vnd.quoth.batches"
EVENTS = "text/event-stream"

_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class AnswerCut(Exception):
    """Raised where an answer cannot go on: by a gap in a format that cannot tell it, or an error."""


def encoded(content: Any) -> bytes:
    """Encode an object as JSON, in one line."""
    return _json(content).encode("utf-8", "backslashreplace")


def gap_object(gap: Gap) -> dict[str, Any]:
    """Convert a gap to an object. records: -1 if their number is not known."""
    about = {"topic": gap.topic, "after": gap.after, "next": gap.next, "records": gap.records}
    return {"gap": {**about, "reason": gap.reason}}


class RecordFormat(ABC):
    """Encodes the records of one answer."""

    media_type = NDJSON
    suffix = ""
    """Added to the type in the header Content-Type."""
    tells_gaps = True

    def begin(self) -> bytes:
        """Return what stands before the records."""
        return b""

    def end(self) -> bytes:
        """Return what stands behind the records."""
        return b""

    @abstractmethod
    def record(self, message: Message) -> bytes:
        """Encode one record."""

    def gap(self, gap: Gap) -> bytes:
        """Encode a gap. Raises `AnswerCut`."""
        if not self.tells_gaps:
            raise AnswerCut(gap)
        return self._told(gap_object(gap))

    def problem(self, problem: QuothError) -> bytes:
        """Encode the error behind which the answer is cut, if the format can tell it."""
        return self._told(HttpProblem.of(problem).content()) if self.tells_gaps else b""

    def _told(self, _content: dict[str, Any]) -> bytes:
        """Encode an object that is no record."""
        return b""


class Lines(RecordFormat):
    """An object of JSON on each line."""

    def record(self, message: Message) -> bytes:
        """Encode one record."""
        return encoded(record_object(message)) + b"\n"

    def _told(self, content: dict[str, Any]) -> bytes:
        return encoded(content) + b"\n"


class Array(Lines):
    """An array of JSON."""

    media_type = JSON

    def __init__(self) -> None:
        self._is_first = True

    def begin(self) -> bytes:
        """Begin the array."""
        return b"["

    def end(self) -> bytes:
        """End the array."""
        return b"]"

    def record(self, message: Message) -> bytes:
        """Encode one record."""
        return self._element(encoded(record_object(message)))

    def _told(self, content: dict[str, Any]) -> bytes:
        return self._element(encoded(content))

    def _element(self, content: bytes) -> bytes:
        first, self._is_first = self._is_first, False
        return content if first else b"," + content


class Packed(RecordFormat):
    """Maps of msgpack, one behind the other: values, keys and headers are binary."""

    media_type = PACKED

    def record(self, message: Message) -> bytes:
        """Encode one record."""
        content: bytes = msgpack.packb(
            {
                "pointer": message.pointer,
                "key": message.key,
                "value": message.value,
                "headers": dict(message.headers),
            }
        )
        return content

    def _told(self, content: dict[str, Any]) -> bytes:
        packed: bytes = msgpack.packb(content)
        return packed


class Values(RecordFormat):
    """The values alone, joined."""

    media_type = BINARY
    tells_gaps = False

    def record(self, message: Message) -> bytes:
        """Return the value."""
        return message.value


class TextLines(RecordFormat):
    """The values alone, each with a newline."""

    media_type = TEXT
    tells_gaps = False
    suffix = "; charset=utf-8"

    def record(self, message: Message) -> bytes:
        """Return the value and a newline."""
        return message.value + b"\n"


class EventStream(RecordFormat):
    """Server-sent events: the id of a record is its pointer."""

    media_type = EVENTS

    def record(self, message: Message) -> bytes:
        """Encode one record as an event without a name."""
        return b"id: %d\ndata: %s\n\n" % (message.pointer, encoded(record_object(message)))

    def gap(self, gap: Gap) -> bytes:
        """Encode a gap; a client that resumes with its id goes on behind it."""
        return b"id: %d\nevent: gap\ndata: %s\n\n" % (gap.next - 1, encoded(gap_object(gap)["gap"]))


def end_event(reason: str, text: str = "") -> bytes:
    """Encode the last event of a stream that ends."""
    return b"event: end\ndata: %s\n\n" % encoded({"reason": reason, "text": text})


RECORDS: dict[str, type[RecordFormat]] = {
    one.media_type: one for one in (Lines, Array, Packed, Values, TextLines)
}
"""The formats of a range of records, the default one first. `BATCHES` has no records of its own."""


class AcceptedType(NamedTuple):
    """One element of a header Accept."""

    media_type: str
    quality: float


def negotiated(accept: str, offered: Sequence[str]) -> str:
    """Return the type that a client prefers; the first one for an empty header. Raises 406."""
    ranges = [_element(part) for part in accept.split(",") if part.strip()]
    if not ranges:
        return offered[0]
    best = max(offered, key=lambda one: _quality(one, ranges))
    if _quality(best, ranges) <= 0:
        raise HttpProblem("not_acceptable", f"no type of {accept!r:.100} is among {', '.join(offered)}")
    return best


def _element(part: str) -> AcceptedType:
    name, *parameters = (piece.strip() for piece in part.split(";"))
    quality = 1.0
    for parameter in parameters:
        if parameter.lower().startswith("q="):
            try:
                quality = float(parameter[2:])
            except ValueError:
                quality = 0.0
    return AcceptedType(name.lower(), quality)


def _quality(offered: str, ranges: Sequence[AcceptedType]) -> float:
    """Return the quality of a type: that of the most specific element that has it."""
    found = [(_fit(one.media_type, offered), one.quality) for one in ranges]
    fitting = [pair for pair in found if pair[0]]
    return max(fitting)[1] if fitting else 0.0


def _fit(media_range: str, offered: str) -> int:
    if media_range == offered:
        return 3
    if media_range == f"{offered.partition('/')[0]}/*":
        return 2
    return int(media_range in ("*/*", "*"))
