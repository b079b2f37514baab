"""Writes the records that no member could process to another topic, then finishes them.

A dead letter has the value and the key of its record, and headers that say where it comes from. It gets a
number, which is in the log of the groups, synced, before the record leaves: the letter is published by the
group as a producer with that number as its sequence, so it is stored once, whatever dies in between. One
letter of a group is on its way at a time. While its topic refuses it, the records stay where they are.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from quothd.groups.store import GroupStore
from quothd.requests.dead_letter import NUMBERS_FROM, producer_of_letter
from quothd.requests.events import DeadLetter, DeadLetterDone
from quothd.service.log_events import note
from quothlog.groups import events
from quothlog.groups.group_state import GroupState
from quothlog.groups.selection import ChosenRecords, select
from quothlog.groups.spans import Span
from quothlog.reading.read_request import UNLIMITED
from quothlog.storage.write_failure import storage_failed
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


_NOWHERE = _Letter(0, 0, 0)


class DeadLetters:
    """The dead letters of the groups of one topic. Owned by the topic."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store
        self._on_way: dict[str, _Letter] = {}
        self._problems: dict[str, QuothError] = {}
        self._retry_at: dict[str, float] = {}
        self._unsynced: list[tuple[int, DeadLetter]] = []
        """Letters that leave once the log of the groups is synced up to a pointer."""

    @property
    def is_at_work(self) -> bool:
        """True while a letter is on its way, or waits to be sent again."""
        return bool(self._on_way or self._retry_at)

    def next_due(self) -> float:
        """Return the monotonic time of the next call of `tick`."""
        return min(self._retry_at.values(), default=math.inf)

    @property
    def delayed(self) -> int:
        """The number of groups of which letters cannot be written."""
        return len(self._problems)

    def problem(self, group: str) -> str:
        """Return the reason for which letters of a group cannot be written, empty for none."""
        found = self._problems.get(group)
        return found.text if found is not None else ""

    def take(self, group: GroupState, now: float) -> None:
        """Send the next letter of a group, if it has one and none is on its way.

        Logs a failure, and tries again later: no request of a member depends on it.
        """
        if self._retry_at.get(group.name, -math.inf) > now:
            return
        self._retry_at.pop(group.name, None)
        try:
            while group.name not in self._on_way and (span := group.next_dying()) is not None:
                self._send(group, span, now)
        except (QuothError, OSError) as problem:
            self._delay(group.name, problem, now)
        else:
            if group.name not in self._on_way:
                self._problems.pop(group.name, None)

    @property
    def wait_for_sync(self) -> bool:
        """True while a letter waits for an fsync of the log of the groups."""
        return bool(self._unsynced)

    def leave(self, now: float) -> None:
        """Send the letters whose numbers are synced. None leaves from a log that fails."""
        unsynced, self._unsynced = self._unsynced, []
        for last, letter in unsynced:
            if letter.number != self._on_way.get(letter.group, _NOWHERE).number:
                continue
            if last <= self._store.synced:
                self._store.events.add(letter)
            elif (failure := self._store.failure) is not None:
                del self._on_way[letter.group]
                self._delay(letter.group, failure, now)
            else:
                self._unsynced.append((last, letter))

    def tick(self, now: float) -> None:
        """Send again what was refused."""
        for name in [name for name, due in self._retry_at.items() if due <= now]:
            self.take(self._store.group(name), now)

    def finish(self, done: DeadLetterDone, now: float) -> None:
        """Take note of the outcome of a letter."""
        letter = self._on_way.get(done.group)
        if letter is None or letter.number != done.number:
            return
        del self._on_way[done.group]
        group = self._store.group(done.group)
        try:
            if done.problem is not None and done.problem.code not in STORED_BEFORE:
                raise done.problem
            self._problems.pop(done.group, None)
            spans = group.spans.overlapping(letter.after, letter.until)
            self._finish(group, [span for span in spans if span.number == letter.number], now)
        except (QuothError, OSError) as problem:
            self._delay(group.name, problem, now)
        else:
            self.take(group, now)
        self._store.announce(group, now)

    def forget(self, group: str) -> None:
        """Forget the letters of a group that was deleted or moved."""
        for kept in (self._on_way, self._problems, self._retry_at):
            kept.pop(group, None)

    # -- inside ---------------------------------------------------------------------------------------------

    def _delay(self, group: str, problem: QuothError | OSError, now: float) -> None:
        """Keep the letters of a group until later, for a problem that the group reports."""
        if not isinstance(problem, QuothError):
            problem = storage_failed(problem, self._store.log.directory)
        if group not in self._problems:
            note("dead_letter_delayed", topic=self._store.topic, group=group, problem=problem)
        self._problems[group] = problem
        self._retry_at[group] = now + RETRY_S

    def _target(self, group: GroupState) -> str:
        """Return the dead-letter topic. Dead letters have none of their own, unless one is named."""
        topic = self._store.topic
        if group.settings.dead_letter == AUTO and topic.endswith(DEAD_SUFFIX):
            return ""
        return group.settings.dead_letter_topic(topic, group.name)

    def _send(self, group: GroupState, span: Span, now: float) -> None:
        """Send the first records of a span, or finish them if none is left.

        Without a topic for them all dying records are finished.
        """
        target = self._target(group)
        if not target:
            self._finish(group, group.spans.dying(), now)
            return
        chosen, letter = self._composed(group, span)
        if chosen is None:
            self._finish(group, self._gone(group) or [span], now, gone=True)
            return
        if not span.number:
            span, letter = self._numbered(group, span, chosen, now)
        if letter is None:
            raise error("too_large", f"dead letter {span.number} of group {group.name!r}")
        self._on_way[group.name] = _Letter(span.number, span.after, span.until)
        self._unsynced.append((self._store.end, DeadLetter(group.name, span.number, target, letter)))

    def _gone(self, group: GroupState) -> list[Span]:
        """Return the dying spans in front of the oldest record."""
        log = self._store.log
        first = log.info().first or log.newest + 1
        return [span for span in group.spans.dying() if span.until < first]

    def _composed(self, group: GroupState, span: Span) -> tuple[ChosenRecords | None, bytes | None]:
        """Choose as many of the first records of a span as fit into a letter; returns them and the letter.

        A span with a number is one letter, whatever became of its records.
        """
        if span.number:
            chosen = self._read(span, UNLIMITED)
            return chosen, self._letter(group, span, chosen) if chosen is not None else None
        most = LETTER_RECORDS_MAX
        while (chosen := self._read(span, most)) is not None:
            if (letter := self._letter(group, span, chosen)) is not None:
                return chosen, letter
            most = max(1, chosen.records // 2)
        return None, None

    def _numbered(
        self, group: GroupState, span: Span, chosen: ChosenRecords, now: float
    ) -> tuple[Span, bytes | None]:
        """Give chosen records the number of a letter, durably; returns their span and the letter.

        The number is higher than any that the log may have forgotten by damage: a sequence that the
        dead-letter topic has would make it take the letter for another one.
        """
        span = group.cut_dying(span, chosen.last, chosen)
        number = max(group.counts.letters + 1, NUMBERS_FROM + self._store.now())
        changes = [events.settled(group, []), events.dying(group, span, number, span.reason)]
        self._store.change(changes, now)
        group.number_letter(span, number)
        return span, self._letter(group, span, chosen)

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
        log_id = self._store.log.log_id
        for raw in (one for part in chosen.batches for one in batch.split(part, log_id)):
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
        producer = producer_of_letter(self._store.log.log_id, group.number, number)
        flags = int(Flag.SPARSE | Flag.START)
        encoded = [encode_headers(one) for one in headers]
        return batch.encode(values, keys, encoded, producer=producer, sequence=number, flags=flags)

    def _finish(self, group: GroupState, spans: list[Span], now: float, *, gone: bool = False) -> None:
        """Finish records that are dead letters, or that are gone, durably."""
        if not spans:
            return
        store, counts = self._store, replace(group.counts)
        records = sum(max(0, span.records) for span in spans) if gone else store.count(spans)
        if gone:
            group.lose(records, 0)
        else:
            group.counts.dead += records
        try:
            store.change([events.settled(group, spans)], now)
        except BaseException:
            group.counts = counts
            raise
        group.finish(spans)
        if not gone:
            note("dead_letter", topic=store.topic, group=group.name, records=records)
