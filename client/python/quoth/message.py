"""What an application gets: messages, acknowledgements, gaps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from quothwire import pointer as pointers


class Message(NamedTuple):
    """One record of a topic. The key is None where there is none; headers are empty then.

    Logs of old may hold headers that are no map of text to bytes. They are empty here, too: see `raw_headers`
    and `headers_problem`.
    """

    topic: str
    pointer: int
    value: bytes
    key: bytes | None
    headers: Mapping[str, bytes]

    @property
    def raw_headers(self) -> bytes:
        """The headers as stored if they cannot be decoded and `headers` is empty for that; else no bytes."""
        from quothwire.headers import raw_of  # few look at it, and it takes long to load

        return raw_of(self.headers)

    @property
    def headers_problem(self) -> str:
        """Why the headers cannot be decoded; empty if they can."""
        from quothwire.headers import problem_of

        return problem_of(self.headers)

    @property
    def time(self) -> datetime:
        """When the broker took it: the pointer as a time, UTC, exact to the microsecond."""
        return pointers.to_datetime(self.pointer)


@dataclass(frozen=True, slots=True)
class Ack:
    """Where records were stored: the pointers first, first + 1, ..., last.

    durability: the level that is reached, ``written`` or ``synced``. duplicate: an earlier attempt had
    stored them already.
    """

    first: int
    last: int
    count: int
    durability: str
    duplicate: bool


class PointerRange(NamedTuple):
    """Records of a topic above the pointer `after` up to `until`: how many, in how many stored bytes."""

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

    records: how many, -1 if that cannot be known. ordinal: how many records the topic ever held before the
    first of them, -1 if that cannot be known. reason: ``trimmed`` by retention or request, ``damaged``
    on the disk, ``recreated``: the topic was deleted and made anew. ``ahead``: the cursor lies above the
    newest record, `after`, as in a topic that was restored, or by a mistake; `records` is 0, since nothing is
    missing, and the reader waits for records from `next` on.
    """

    topic: str
    after: int
    next: int
    records: int
    reason: Reason
    ordinal: int = -1


OnGap = Callable[[Gap], None]
"""What an application does about a gap; it may raise to stop the reading."""
