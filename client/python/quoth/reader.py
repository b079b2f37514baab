"""Cursors that read one topic batch by batch, and report the records that are missing.

The ordinals in the batches give the exact number of records that are missing between two of them, whatever
removed them. The broker's reply says what is missing in front of the first batch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

from quoth.batch import Batch, StoredBatch
from quoth.core.options import deadline_in
from quoth.core.request_state import ClientCall, RequestState
from quoth.message import Gap, OnGap, Reason
from quoth.timestamps import Timestamp, cursor
from quothwire import batch as wire
from quothwire.batch import Header
from quothwire.errors import Disconnected, QuothError, error
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import FETCH_BYTES_MAX, WAIT_MS_MAX, Fetch, Fetched
from quothwire.settings import DURABILITIES

FETCH_BYTES = 2**20
RECORDS_MAX = 2**32
NEWEST = -1
"""Stands for the cursor behind the newest record, which has to be found before anything is read."""
WAIT_S_MAX = WAIT_MS_MAX / 1_000

T = TypeVar("T")


def log_gap(gap: Gap) -> None:
    """Log a warning: the default for an application that gives no `on_gap`."""
    import logging  # slow to load, and most readers find no gap

    if gap.reason == "ahead":
        text = f"the cursor lies above the newest record topic={gap.topic!r} newest={gap.after}"
    else:
        count = "some" if gap.records < 0 else gap.records
        text = f"{count} records are missing topic={gap.topic!r} reason={gap.reason} after={gap.after}"
    logging.getLogger("quoth").warning("%s next=%d", text, gap.next)


class BatchCursor(ABC, Generic[T]):
    """A position in one topic that moves over its batches. Subclasses define what is made of a batch.

    after: the pointer up to which everything was handed out or reported. until: the last pointer to read.
    durability: as of a fetch.
    """

    fetch_bytes = FETCH_BYTES
    """Bytes that one fetch asks for."""

    def __init__(self, topic: str, after: int, on_gap: OnGap | None = None, until: int = POINTER_MAX) -> None:
        self.topic, self.durability = topic, ""
        self.after, self.until = after, until
        self.has_answered = False
        """True if a fetch of the topic succeeded."""
        self.has_more = True
        """True if another fetch may bring more, even if all of the last answer was damaged."""
        self.fetched_bytes = 0
        """The size of the last answer."""
        self.wait = 0.0
        """Seconds for which an iteration waits for more at the end."""
        self.is_time = False
        """True if the beginning was given as a time. Such a cursor may lie above the newest record."""
        self.prefetch: RequestState | None = None
        """The fetch to be sent before its batches are needed."""
        self._prefetch_after = -1
        """The cursor of that fetch."""
        self._is_ahead = self._has_asked = False
        self._fetches_one = False
        """True where the next batch has a damaged header: only a fetch of it alone says where it ends."""
        self.report_to(on_gap)
        self._log_id, self._ordinal = 0, -1
        self._old_after = -1
        """The cursor in a deleted topic of the same name, until that gap was reported."""

    @abstractmethod
    def _made(self, raw: memoryview, header: Header, skip: int) -> T | None:
        """Return what is handed out for a batch without its first `skip` records, or None.

        Raises `QuothError` if the body does not match its checksum.
        """

    @property
    def is_done(self) -> bool:
        """True if the cursor has reached its end, or that of the topic."""
        return self.after >= self.until or not self.has_more

    @property
    def log_id(self) -> int:
        """The id of the topic's log, 0 if it is not known yet."""
        return self._log_id

    @property
    def ordinal(self) -> int:
        """The number of records that the log held up to the cursor, -1 if it is not known."""
        return self._ordinal

    def find_end(self) -> ClientCall[None]:
        """Move behind the newest record, or to 0 if the topic does not exist. Waits for a broker."""
        try:
            answer = yield RequestState(Fetch(POINTER_MAX, durability=self.durability), self.topic)
        except QuothError as problem:
            if problem.code != "unknown_topic":
                raise
            self.after = 0
            return
        assert isinstance(answer.reply, Fetched)
        self.go_to_end(answer.reply)

    def go_to_end(self, reply: Fetched) -> None:
        """Move behind the newest record."""
        self.after, self._ordinal, self._log_id = reply.newest, reply.end, reply.log
        self.has_answered = True

    def report_to(self, on_gap: OnGap | None) -> None:
        """Report gaps to another function from now on; None: to the log."""
        self._on_gap = on_gap or log_gap

    def resume(self, after: int, log_id: int, ordinal: int) -> None:
        """Move to the position of an earlier reader. log_id, ordinal: 0 and -1 if not known."""
        self.after, self._log_id, self._ordinal = after, log_id, ordinal

    def first_wait(self, wait: float) -> float:
        """Return the seconds for which the broker may hold the next fetch of a tail.

        0 for the first fetch of a cursor that may lie above the newest record: that is reported at once, not
        after a long wait.
        """
        is_sure = self._has_asked or self.has_answered or self.is_time or not self.after
        self._has_asked = True
        return wait if is_sure else 0.0

    def next_fetch(self, wait: float, bytes_max: int) -> Fetch:
        """Return the next request. For a caller that sends it itself and gives the answer to `take`."""
        return self._fetch(self.after, self._ordinal, wait, bytes_max)

    def fetch(
        self, *, wait: float = 0.0, timeout: float, records_max: int = RECORDS_MAX
    ) -> ClientCall[Iterator[T]]:
        """Fetch the next batches, none if nothing lies above the cursor within `wait` seconds.

        timeout: seconds that the broker may take beyond that. The cursor moves, and gaps are reported, while
        the batches are iterated.
        """
        wait = min(wait, WAIT_S_MAX)
        request = self._request(self.after, self._ordinal, wait, records_max)
        request.deadline = deadline_in(wait + timeout)
        return self.take((yield request))

    def fetch_ahead(
        self,
        *,
        wait: float = 0.0,
        timeout: float,
        prefetch_wait: float | None = None,
        records_max: int = RECORDS_MAX,
    ) -> ClientCall[Iterator[T]]:
        """Fetch as `fetch` does, and set `prefetch` to the request for the batches behind these.

        The caller sends that request at once. prefetch_wait: seconds for which the broker may hold it, `wait`
        by default. records_max: of each of both.
        """
        wait = min(wait, WAIT_S_MAX)
        deadline = deadline_in(wait + timeout)
        answer = yield from self._prefetched(deadline)
        if answer is None or not (answer.payload or wait or self._is_end(answer)):  # there may be more by now
            request = self._request(self.after, self._ordinal, wait, records_max)
            request.deadline = deadline
            answer = yield request
        found = self.take(answer)
        self._prefetch_after, ordinal = self._end_of(answer.payload)
        is_same_log = self._old_after < 0  # else the new topic is fetched from its beginning
        if ordinal >= 0 and is_same_log and self._prefetch_after < self.until:
            wait = wait if prefetch_wait is None else prefetch_wait
            self.prefetch = self._request(self._prefetch_after, ordinal, wait, records_max)
        return found

    def _prefetched(self, deadline: float) -> Generator[RequestState, Answer, Answer | None]:
        """Return the answer to the prefetch, None if it is of no use.

        An error may be outdated by now; one that is not comes again with the next request.
        """
        request, self.prefetch = self.prefetch, None
        if request is None or self._prefetch_after != self.after:
            return None
        request.expect(deadline)
        try:
            return (yield request)
        except Disconnected:
            raise
        except QuothError:
            return None

    def _request(self, after: int, ordinal: int, wait: float, records_max: int = RECORDS_MAX) -> RequestState:
        fetch = self._fetch(after, ordinal, wait, self.fetch_bytes, records_max)
        return RequestState(fetch, self.topic, wait=wait)

    def _fetch(
        self, after: int, ordinal: int, wait: float, bytes_max: int, records_max: int = RECORDS_MAX
    ) -> Fetch:
        return Fetch(
            after=after,
            ordinal=ordinal,
            records_max=1 if self._fetches_one else min(max(records_max, 1), RECORDS_MAX),
            bytes_max=bytes_max,
            wait_ms=math.ceil(wait * 1_000),
            until=self.until if self.until < POINTER_MAX else 0,
            durability=self.durability,
        )

    def _is_end(self, answer: Answer) -> bool:
        """Return True if nothing more lies in front of the end."""
        return isinstance(answer.reply, Fetched) and answer.reply.next >= self.until

    def _end_of(self, payload: wire.Bytes) -> tuple[int, int]:
        """Return the last pointer of stored batches and the ordinal behind it; -1 for no batch, or damage."""
        try:
            first = wire.parse_header(payload, self._log_id)
        except QuothError:
            return -1, -1
        size, last, ordinal = wire.whole(payload, self._log_id, first.base - 1, first.ordinal)
        return (last, ordinal) if size == len(payload) else (-1, -1)

    def take(self, answer: Answer) -> Iterator[T]:
        """Return the batches of an answer. Iterating them moves the cursor and reports gaps."""
        reply = answer.reply
        assert isinstance(reply, Fetched)
        self.has_answered = True
        if self._log_id not in (0, reply.log):
            # Another log: none of its records was read, wherever the cursor stood in the old one.
            self._old_after = self.after
            self.after, self._ordinal, self._log_id = 0, -1, reply.log
            self.has_more = True
            return iter(())
        self._log_id = reply.log
        self.has_more = bool(answer.payload)
        self.fetched_bytes = len(answer.payload)
        if not self.has_more and reply.newest == self.after:
            self._ordinal = reply.end
        self._check_ahead(reply)
        return self._open(answer.payload, reply)

    def _check_ahead(self, reply: Fetched) -> None:
        """Report once that the cursor lies above the newest record; a synced read may not have reached it."""
        was_ahead = self._is_ahead
        self._is_ahead = reply.newest < self.after and not (self.is_time or self.durability)
        if self._is_ahead and not was_ahead:
            self._on_gap(Gap(self.topic, reply.newest, self.after + 1, 0, "ahead", reply.end))

    def _open(self, payload: wire.Bytes, reply: Fetched) -> Iterator[T]:
        view = memoryview(payload)
        position, size = 0, len(view)
        while position < size:
            try:
                header = wire.parse_header(view, reply.log, position)
            except QuothError:
                if position or not self._fetches_one:
                    self._fetches_one = True
                else:
                    self._skip_unknown(reply.next)
                return
            self._fetches_one = False
            if header.base > self.until:
                break
            if not position:
                self._report_front(header, reply)
            end = position + wire.HEADER_BYTES + header.body_bytes
            found = self._batch(view[position:end], header)
            position = end
            if found is not None:
                yield found
        if position < size or reply.next >= self.until:
            self._reach_end(reply, nothing=not position)

    def _reach_end(self, reply: Fetched, *, nothing: bool) -> None:
        """Move to the end. nothing: no batch lay in front of it."""
        before, self.after = self.after, max(self.after, self.until)
        reasons: dict[Reason, object] = {}
        if self._old_after >= 0:
            reasons["recreated"], before, self._old_after = True, self._old_after, -1
        elif nothing:
            begun = before > 0 or self._ordinal >= 0
            reasons = {"trimmed": begun and reply.gone > reply.damaged, "damaged": reply.damaged}
        for reason in filter(reasons.get, reasons):  # some of them may have lain behind the end
            self._on_gap(Gap(self.topic, before, self.until + 1, -1, reason, self._ordinal))

    def _report_front(self, first: Header, reply: Fetched) -> None:
        """Report what is missing between the cursor and the first batch of a reply."""
        damaged, removed = reply.damaged, reply.gone - reply.damaged
        ordinal = self._ordinal
        if self._old_after >= 0:
            self._on_gap(Gap(self.topic, self._old_after, first.base, -1, "recreated"))
            self._old_after = -1
        if self._ordinal >= 0:
            missing = max(0, first.ordinal - self._ordinal)
            damaged = min(damaged, missing)
            removed = missing - damaged
            self._ordinal = first.ordinal
        elif self.after:
            # The cursor may stand anywhere among them, so their number is not known.
            damaged, removed = -bool(damaged), -bool(removed)
        else:
            removed = 0  # reading begins with the oldest record: what was before it is no loss
            ordinal = first.ordinal - damaged
        before = self.after
        if removed or damaged:
            self.after = max(before, first.base - 1)
        if removed:
            self._on_gap(Gap(self.topic, before, first.base, removed, "trimmed", ordinal))
        if damaged:
            self._on_gap(Gap(self.topic, before, first.base, damaged, "damaged", _behind(ordinal, removed)))

    def _batch(self, raw: memoryview, header: Header) -> T | None:
        """Move behind one batch; returns None if its body is damaged or nothing of it is wanted."""
        _, _, _, records, base, ordinal, *_ = header
        if 0 <= self._ordinal < ordinal:
            self._skip_damage(base - 1, ordinal - self._ordinal, self._ordinal)
        last, before = base + records - 1, max(self.after, base - 1)
        self._ordinal = ordinal + records
        if last <= before:
            return None
        skip = before - base + 1
        try:
            made = self._made(raw, header, skip)
        except QuothError:
            self._skip_damage(last, last - before, ordinal + skip)
            return None
        self.after, self.is_time = last, False
        return made

    def _skip_unknown(self, last: int) -> None:
        """Move behind a batch that was fetched alone, and whose header cannot be read."""
        self._fetches_one = False
        self._skip_damage(last, -1, self._ordinal)
        self._ordinal = -1

    def _skip_damage(self, last: int, records: int, ordinal: int) -> None:
        """Move to the pointer `last` and report everything up to it as damaged."""
        before, self.after = self.after, max(self.after, last)
        self._on_gap(Gap(self.topic, before, last + 1, records, "damaged", ordinal))


class RecordReader(BatchCursor[Batch]):
    """A cursor that hands out the records behind it."""

    def _made(self, raw: memoryview, _header: Header, skip: int) -> Batch | None:
        found = Batch.of(self.topic, wire.decode(raw, self._log_id), skip)
        return found if found.values else None


def reader_from(
    topic: str, after: int | None, since: Timestamp | None, on_gap: OnGap | None, until: int = POINTER_MAX
) -> RecordReader:
    """Return a reader that begins behind the pointer `after`, at a time, or with the oldest record."""
    reader = RecordReader(topic, cursor(after, since, 0), on_gap, until)
    reader.is_time = since is not None
    return reader


def level_of(durability: str | None) -> str:
    """Return a level as a fetch has it: empty for what the topic shows, which any broker understands.

    Raises ``bad_request`` for a level that does not exist.
    """
    if durability not in (None, *DURABILITIES):
        levels = " or ".join(DURABILITIES)
        raise error("bad_request", f"durability is {levels}, not {durability!r:.100}")
    return "synced" if durability == "synced" else ""


class StoredReader(BatchCursor[StoredBatch]):
    """A cursor that hands out whole batches as they are stored, the first of which may begin before it.

    Its fetches are large: callers collect several batches before they work on them, and an answer that holds
    as many keeps them from waiting.
    """

    fetch_bytes = FETCH_BYTES_MAX

    def _made(self, raw: memoryview, header: Header, _skip: int) -> StoredBatch:
        wire.body_of(raw, header)
        return StoredBatch(header, raw, self._log_id)


def _behind(ordinal: int, records: int) -> int:
    """Return the ordinal that many records further, -1 if it is not known."""
    return ordinal + records if ordinal >= 0 and records >= 0 else -1
