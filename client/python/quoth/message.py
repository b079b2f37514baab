"""The values that an application gets: messages, acknowledgements, ranges, gaps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

from quothwire import pointer as pointers

if TYPE_CHECKING:
    from quothwire.protocol.messages import Published


class Message(NamedTuple):
    """One record of a topic. The key may be None; headers are empty if the record has none.

    An early version may have stored headers that cannot be decoded. They are empty here, too: see
    `raw_headers` and `headers_problem`.
    """

    topic: str
    pointer: int
    value: bytes
    key: bytes | None
    headers: Mapping[str, bytes]

    @property
    def raw_headers(self) -> bytes:
        """The stored bytes of headers that cannot be decoded; else no bytes."""
        from quothwire.headers import raw_of  # rarely used, and slow to load

        return raw_of(self.headers)

    @property
    def headers_problem(self) -> str:
        """The reason why the headers cannot be decoded; empty if they can."""
        from quothwire.headers import problem_of

        return problem_of(self.headers)

    @property
    def time(self) -> datetime:
        """The time at which the broker stored it: the pointer as a time, UTC, exact to the microsecond."""
        return pointers.to_datetime(self.pointer)


@dataclass(frozen=True, slots=True)
class Ack:
    """The place of records that were stored: the pointers first, first + 1, ..., last.

    durability: the level that is reached, ``written`` or ``synced``. duplicate: an earlier attempt had stored
    them already.
    """

    first: int
    last: int
    count: int
    durability: str
    duplicate: bool

    @classmethod
    def of(cls, reply: Published) -> Ack:
        """Return the acknowledgement that a reply holds."""
        return cls(reply.first, reply.last, reply.count, reply.durability, reply.duplicate)


class PointerRange(NamedTuple):
    """The records of a topic above the pointer `after` up to `until`: their number and their stored bytes."""

    after: int
    until: int
    records: int
    bytes: int


Stretch = PointerRange
"""The name of `PointerRange` in earlier versions."""

Reason = Literal["trimmed", "damaged", "recreated", "ahead"]


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that a reader did not get: those after the pointer `after` and before `next`.

    records: their number, -1 if it is not known. ordinal: how many records the topic ever held before the
    first of them, -1 if that is not known. reason: ``trimmed`` by retention or request, ``damaged`` on the
    disk, ``recreated``: the topic was deleted and created again. ``ahead``: the cursor lies above the newest
    record, `after`, as in a topic that was restored, or by a mistake; `records` is 0, since nothing is
    missing, and the reader waits for records from `next` on.
    """

    topic: str
    after: int
    next: int
    records: int
    reason: Reason
    ordinal: int = -1


OnGap = Callable[[Gap], None]
"""Called with each gap; may raise to stop the reading."""
