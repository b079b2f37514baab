"""Writes the records that no member could process to another topic, then finishes them.

A dead letter has the value and the key of its record, and headers that say where it comes from. It gets a
number, which is in the log of the groups before the record leaves: the letter is published by the group as a
producer with that number as its sequence, so it is stored once, whatever dies in between. One letter of a
group is on its way at a time. While its topic refuses it, the records stay where they are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from quothd.groups.store import GroupStore
from quothd.requests.events import DeadLetter, DeadLetterDone, GroupReady
from quothd.service.log_events import note
from quothlog.groups import events
from quothlog.groups.group_state import GroupState
from quothlog.groups.selection import ChosenRecords, select
from quothlog.groups.spans import Span
from quothlog.reading.read_request import UNLIMITED
from quothwire import batch
from quothwire.batch import Bytes, Flag
from quothwire.errors import QuothError, error
from quothwire.headers import encode_headers
from quothwire.protocol.group_settings import AUTO
from quothwire.record import Record, records_of

LETTER_RECORDS_MAX = 100
LETTER_BYTES_MAX = 2**20
REASON_MAX = 1_000
"""Characters of a reason."""
RETRY_S = 5.0
"""Time before a letter that was refused is sent again."""
DEAD_SUFFIX = ".dead"
STORED_BEFORE = ("sequence_reused", "forgotten_sequence")
"""A letter of this number was stored, before some of its records were removed, or long ago."""


class _Letter(NamedTuple):
    """A letter on its way: its number, and where its records are."""

    number: int
    after: int
    until: int


class DeadLetters:
    """The dead letters of the groups of one topic. Owned by the topic."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store
        self._on_way: dict[str, _Letter] = {}
        self._problems: dict[str, QuothError] = {}
        self._retry_at: dict[str, float] = {}

    @property
    def is_at_work(self) -> bool:
        """True while a letter is on its way, or waits to be sent again."""
        return bool(self._on_way or self._retry_at)

    def next_due(self) -> float:
        """Return the monotonic time of the next call of `tick`."""
        return min(self._retry_at.values(), default=math.inf)

    def problem(self, group: str) -> str:
        """Return the reason for which letters of a group cannot be written, empty for none."""
        found = self._problems.get(group)
        return found.text if found is not None else ""

    def take(self, group: GroupState, now: float) -> None:
        """Send the next letter of a group, if it has one. Raises `QuothError`, or OSError."""
        while group.name not in self._on_way and (span := group.next_dying()) is not None:
            self._retry_at.pop(group.name, None)
            target = self._target(group)
            if not target:
                self._finish(group, [span], now)
            elif not self._send(group, span, target, now):
                self._finish(group, [span], now, gone=True)

    def tick(self, now: float) -> None:
        """Send again what was refused. Logs a failure; the next call tries again."""
        for name in [name for name, due in self._retry_at.items() if due <= now]:
            self._retry_at[name] = now + RETRY_S
            try:
                self.take(self._store.group(name), now)
            except (QuothError, OSError) as problem:
                note("dead_letter_delayed", topic=self._store.topic, group=name, problem=problem)

    def finish(self, done: DeadLetterDone, now: float) -> None:
        """Take note of the outcome of a letter. Raises `QuothError`, or OSError."""
        letter = self._on_way.get(done.group)
        if letter is None or letter.number != done.number:
            return
        del self._on_way[done.group]
        group = self._store.group(done.group)
        if done.problem is not None and done.problem.code not in STORED_BEFORE:
            if done.group not in self._problems:
                note("dead_letter_delayed", topic=self._store.topic, group=group.name, problem=done.problem)
            self._problems[done.group] = done.problem
            self._retry_at[done.group] = now + RETRY_S
            return
        self._problems.pop(done.group, None)
        spans = group.spans.overlapping(letter.after, letter.until)
        self._finish(group, [span for span in spans if span.number == letter.number], now)
        self.take(group, now)

    def forget(self, group: str) -> None:
        """Forget the letters of a group that was deleted or moved."""
        for kept in (self._on_way, self._problems, self._retry_at):
            kept.pop(group, None)

    # -- inside ---------------------------------------------------------------------------------------------

    def _target(self, group: GroupState) -> str:
        """Return the dead-letter topic. Dead letters have none of their own, unless one is named."""
        topic = self._store.topic
        if group.settings.dead_letter == AUTO and topic.endswith(DEAD_SUFFIX):
            return ""
        return group.settings.dead_letter_topic(topic, group.name)

    def _send(self, group: GroupState, span: Span, target: str, now: float) -> bool:
        """Send the first records of a span; False if it holds none any more."""
        store = self._store
        most = LETTER_RECORDS_MAX
        while (chosen := self._read(span, UNLIMITED if span.number else most)) is not None:
            letter = self._letter(group, span, chosen)
            if letter is not None or span.number:
                break
            most = max(1, chosen.records // 2)
        if chosen is None:
            return False
        if not span.number:
            span = group.cut_dying(span, chosen.last, chosen)
            group.counts.letters += 1
            span.number = group.counts.letters
            store.change([events.dying(group, span)], now)
            letter = self._letter(group, span, chosen)
        if letter is None:
            raise error("too_large", f"dead letter {span.number} of group {group.name!r}")
        self._on_way[group.name] = _Letter(span.number, span.after, span.until)
        store.events.add(DeadLetter(group.name, span.number, target, letter))
        return True

    def _read(self, span: Span, records_max: int) -> ChosenRecords | None:
        """Read the first records of a span; None if it holds none any more."""
        log = self._store.log
        found = log.fetch(span.after, records_max, LETTER_BYTES_MAX)
        return select(found, log.log_id, span.after, span.until, records_max) if found is not None else None

    def _letter(self, group: GroupState, span: Span, chosen: ChosenRecords) -> bytes | None:
        """Encode records as a batch of dead letters, the same each time; None if they are too large together.

        A record that leaves no room for the headers, or is damaged, becomes a letter without a value: its
        pointer tells where that is.
        """
        records: list[Record] = []
        for raw in chosen.batches:
            records += self._records(raw, span.after + 1, chosen.last)
        values, keys = [one.value for one in records], [one.key for one in records]
        headers = [{**one.headers, **self._about(group, span, one.pointer)} for one in records]
        try:
            return self._encode(group, span.number or 1, values, keys, headers)
        except QuothError:
            if len(values) > 1:
                return None
            about = self._about(group, span, chosen.last)
            return self._encode(group, span.number or 1, [b""], [None], [about])

    def _records(self, raw: Bytes, first: int, last: int) -> list[Record]:
        """Decode a batch; a damaged one gives empty records, of which the first and the last are named."""
        log_id = self._store.log.log_id
        try:
            return records_of(batch.decode(raw, log_id))
        except QuothError:
            header = batch.parse_header(raw, log_id)
            lost = range(max(first, header.base), min(last, header.last) + 1)
            return [Record(pointer, b"", None, {}) for pointer in lost]

    def _about(self, group: GroupState, span: Span, pointer: int) -> dict[str, bytes]:
        """Return the headers of a dead letter."""
        return {
            "quoth-topic": self._store.topic.encode(),
            "quoth-pointer": b"%d" % pointer,
            "quoth-group": group.name.encode(),
            "quoth-attempts": b"%d" % span.attempts,
            "quoth-member": span.member.encode(),
            "quoth-reason": span.reason[:REASON_MAX].encode("utf-8", "replace"),
        }

    def _encode(
        self,
        group: GroupState,
        number: int,
        values: list[bytes],
        keys: list[bytes | None],
        headers: list[dict[str, bytes]],
    ) -> bytes:
        named = f"{self._store.log.log_id:016x} {group.number}"
        producer = xxh3_64_intdigest(named.encode()) or 1
        flags = int(Flag.SPARSE | Flag.START)
        encoded = [encode_headers(one) for one in headers]
        return batch.encode(values, keys, encoded, producer=producer, sequence=number, flags=flags)

    def _finish(self, group: GroupState, spans: list[Span], now: float, *, gone: bool = False) -> None:
        """Finish records that are dead letters, or that are gone."""
        store = self._store
        records = group.finish(spans)
        if not spans:
            return
        if gone:
            group.counts.gone += records
        else:
            group.counts.dead += records
            note("dead_letter", topic=store.topic, group=group.name, records=records)
        store.change([events.settled(group, spans)], now)
        store.events.add(GroupReady(group.name, now))
