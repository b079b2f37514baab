"""Events of the groups of a topic, the records of their log.

Each is a msgpack array that begins with its kind and the group's number. Applied in order to nothing, they
give the groups again. A snapshot replaces all that was known of its group, so the log can begin with one of
each group; it is stored twice, since without it what follows about its group means nothing. Everything else
may be damaged: then records are handed out once more.

    1 snapshot    name, settings, generation, paused, cursor, ordinal, counts, used, spans
    2 settled     generation, cursor, ordinal, [after, until, ...], counts
    3 attempted   generation, [after, until, attempts, ...]
    4 dying       generation, after, until, number, attempts, reason, member
    5 removed

A span of a snapshot is [after, until, attempts], and [.., number, reason, member] for a dying one, whose
number is 0 until its letter leaves. Counts are redelivered, dead, gone, and the highest number of a letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple
from enum import IntEnum
from functools import lru_cache
from typing import Any

import msgpack

from quothlog.groups.group_state import GroupCounts, GroupState
from quothlog.groups.spans import UNREAD, Span, SpanState
from quothwire.errors import QuothError
from quothwire.protocol.group_settings import GroupSettings

SPANS_BYTES_MAX = 8 * 2**20
"""If the spans of a snapshot need more, as many rejected records without a dead-letter topic may, it is
without their reasons and members: a batch has to take it. So it is with the reasons of one request."""
ROW_FIELDS_KEPT = 4


class Kind(IntEnum):
    """The kind of an event."""

    SNAPSHOT = 1
    SETTLED = 2
    ATTEMPTED = 3
    DYING = 4
    REMOVED = 5


def snapshot(group: GroupState) -> bytes:
    """Encode all that survives a restart of one group."""
    fields = (
        Kind.SNAPSHOT, group.number, group.name, group.settings.to_map(), group.generation, group.is_paused,
        group.cursor, group.ordinal, astuple(group.counts), group.used,
    )  # fmt: skip
    packer = msgpack.Packer()
    pack = packer.pack  # span by span: rows of all of them at once would be much work for the collector
    packed = [packer.pack_array_header(len(fields) + 1), *map(pack, fields)]
    packed.append(packer.pack_array_header(len(group.spans)))
    rows = [pack(_row(span)) for span in group.spans]
    if sum(map(len, rows)) > SPANS_BYTES_MAX:
        rows = [pack(_row(span)[:ROW_FIELDS_KEPT]) for span in group.spans]
    return b"".join([*packed, *rows])


def _row(span: Span) -> tuple[Any, ...]:
    row = span.after, span.until, span.attempts
    return (*row, span.number, span.reason, span.member) if span.state is SpanState.DYING else row


def settled(group: GroupState, spans: Iterable[Span]) -> bytes:
    """Encode that the records of some spans are finished, and how far the cursor is."""
    return _settled(group, group.cursor, group.ordinal, _bounds(spans))


def committed(group: GroupState, pointer: int) -> bytes:
    """Encode that the cursor moves to a pointer, and all up to there is finished."""
    return _settled(group, pointer, -1, [group.cursor, pointer])


def _settled(group: GroupState, cursor: int, ordinal: int, bounds: list[int]) -> bytes:
    counts = astuple(group.counts)
    return _pack(Kind.SETTLED, group.number, group.generation, cursor, ordinal, bounds, counts)


def _bounds(spans: Iterable[Span]) -> list[int]:
    """Return the ranges of spans; those with no record in between are one."""
    bounds: list[int] = []
    for span in sorted(spans, key=lambda span: span.after):
        after = span.extents.lead(span.after) if span.extents is not None else span.after
        if bounds and bounds[-1] >= after:
            bounds[-1] = max(bounds[-1], span.until)
        else:
            bounds += (after, span.until)
    return bounds


def attempted(group: GroupState, spans: Iterable[Span], more: int = 0) -> bytes:
    """Encode how often the records of some spans were handed out. more: added to what the spans say."""
    rows = [number for span in spans for number in (span.after, span.until, span.attempts + more)]
    return _pack(Kind.ATTEMPTED, group.number, group.generation, rows)


def dying(group: GroupState, span: Span, number: int, reason: str) -> bytes:
    """Encode that the records of a span become dead letters. number: of the letter, 0 if it has none yet."""
    return _pack(
        Kind.DYING, group.number, group.generation, span.after, span.until, number, span.attempts, reason,
        span.member,
    )  # fmt: skip


def terminated(group: GroupState, spans: Sequence[Span], reason: str) -> list[bytes]:
    """Encode that the records of some spans become dead letters, as so many events that one batch takes."""
    changes = [dying(group, span, 0, reason) for span in spans]
    if sum(map(len, changes)) > SPANS_BYTES_MAX:
        changes = [dying(group, span, 0, "") for span in spans]
    return changes


def removed(number: int) -> bytes:
    """Encode that the group of a number was deleted."""
    return _pack(Kind.REMOVED, number)


class Replay:
    """Groups as the events in a log give them.

    failed: events that could not be applied. last_number: the highest number of a group.
    """

    def __init__(self) -> None:
        self.groups: dict[int, GroupState] = {}
        self.failed = 0
        self.last_number = 0

    def apply(self, event: bytes, at: int) -> None:
        """Apply the next event. at: when it was written, as a pointer."""
        try:
            kind, number, *fields = msgpack.unpackb(event, use_list=False)
            self.last_number = max(self.last_number, number)
            self._apply(Kind(kind), number, fields)
            if kind != Kind.SNAPSHOT and number in self.groups:
                self.groups[number].used = at
        except (QuothError, ValueError, TypeError, KeyError, AttributeError, AssertionError):
            self.failed += 1

    def _apply(self, kind: Kind, number: int, fields: list[Any]) -> None:
        if kind is Kind.SNAPSHOT:
            self.groups[number] = _restored(number, *fields)
            return
        if kind is Kind.REMOVED:
            self.groups.pop(number, None)
            return
        group = self.groups[number]
        generation, *fields = fields
        if generation != group.generation:
            raise ValueError("an event of another generation")
        if kind is Kind.SETTLED:
            cursor, ordinal, bounds, counts = fields
            _advance(group, cursor, ordinal)
            group.counts = GroupCounts(*counts)
            for after, until in zip(bounds[::2], bounds[1::2], strict=True):
                group.spans.remove(group.spans.cut(after, until).inside)
        elif kind is Kind.ATTEMPTED:
            (rows,) = fields
            for after, until, attempts in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
                _advance(group, until, -1)
                for span in group.spans.cut(after, until).inside:
                    span.attempts = attempts
        else:
            after, until, letter, attempts, reason, member = fields
            _advance(group, until, -1)
            group.counts.letters = max(group.counts.letters, letter)
            for span in group.spans.cut(after, until).inside:
                span.state, span.number = SpanState.DYING, letter
                span.attempts, span.reason, span.member = attempts, reason, member

    def finish(self, now: float) -> Iterator[GroupState]:
        """Yield the groups, with their spans ready to be handed out from a monotonic time on."""
        for group in self.groups.values():
            group.begin(now)
            yield group


@lru_cache
def _settings_of(*items: tuple[str, Any]) -> GroupSettings:
    """Return the settings with some values, which many groups share."""
    return GroupSettings.of(dict(items))


def _restored(
    number: int,
    name: str,
    settings: dict[str, Any],
    generation: int,
    is_paused: bool,
    cursor: int,
    ordinal: int,
    counts: tuple[int, ...],
    used: int,
    spans: Iterable[tuple[Any, ...]],
) -> GroupState:
    group = GroupState(
        number,
        name,
        _settings_of(*settings.items()),
        cursor,
        ordinal,
        generation,
        is_paused,
        GroupCounts(*counts),
    )
    group.used = used
    for after, until, attempts, *dead in spans:
        span = Span(after, until, attempts, key=UNREAD)
        if dead:
            span.state = SpanState.DYING
            span.number, span.reason, span.member = (*dead, "", "")[:3]
        group.spans.append(span)
    return group


def _advance(group: GroupState, cursor: int, ordinal: int) -> None:
    """Move the cursor: what lies between was handed out once, or waited for an earlier record of its key."""
    if cursor > group.cursor:
        attempts = 0 if group.settings.key_order else 1
        group.spans.append(Span(group.cursor, cursor, attempts, key=UNREAD))
        group.cursor, group.ordinal = cursor, ordinal
    elif cursor == group.cursor and ordinal >= 0:
        group.ordinal = ordinal


def _pack(*fields: Any) -> bytes:
    packed: bytes = msgpack.packb(fields)
    return packed
