"""Finds the beginning of the last records of topics, for `tail -n`.

For one topic the ordinals give it exactly. For several topics in the order of time, the last records of each
are read, and the last of all are among them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from quothwire.errors import NotFound

if TYPE_CHECKING:
    from quoth import Client, Gap, Message


def starts_of_last(client: Client, topics: Sequence[str], number: int, *, merged: bool) -> dict[str, int]:
    """Return the cursor in front of the last records of each topic that exists.

    merged: the last of all topics together, by their time; else so many of each.
    """
    from quoth.merging.selection import Selection, is_pattern

    selection = Selection(topics)
    names = [*selection.names]
    if any(map(is_pattern, topics)):
        names += [name for name in client.topics() if selection.matches(name) and name not in names]
    starts: dict[str, int] = {}
    for name in names:
        try:
            starts[name] = _start(client, name, number)
        except NotFound:
            continue  # the tail waits for it and reads it from its beginning
    return _merged(client, starts, number) if merged and len(starts) > 1 and number else starts


def _start(client: Client, topic: str, number: int) -> int:
    """Return the cursor in front of the last records of a topic. Damaged ones count, they are reported."""
    kept = client.count(topic)
    if number == 0 or not kept.records:
        return kept.newest
    # `Count.first` lies behind damage at the start, so this begins at the oldest record.
    left_out = kept.records - number
    skipped = client.advance(topic, 0, max_records=max(1, left_out))
    # A damaged range is not divided: at the start it is taken whole, and holds some of the last records.
    return skipped.until if skipped.records <= left_out else skipped.after


def _merged(client: Client, starts: dict[str, int], number: int) -> dict[str, int]:
    """Return the cursors in front of the last records of all topics together."""
    seen = dict(starts)
    last: deque[Message] = deque(maxlen=number)
    with client.read_many(list(starts), after=starts, ordered=True, on_gap=_ignored) as reading:
        for message in reading:
            seen[message.topic] = message.pointer
            last.append(message)
    for message in reversed(last):
        seen[message.topic] = message.pointer - 1
    return seen


def _ignored(gap: Gap) -> None:
    """Ignore a gap, which is found again when the records are printed."""
