"""Reading a topic on: one cursor that moves over batches, and an account of what is not there.

The ordinals in the batches tell exactly what is missing between two of them, whatever took it away; what is
missing in front of the first one the broker tells.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

from quoth.batch import Batch, StoredBatch
from quoth.core.deadline import deadline_in
from quoth.core.request_state import ClientCall, RequestState
from quoth.message import Gap, OnGap, Reason
from quoth.timestamps import Timestamp, cursor
from quothwire import batch as wire
from quothwire.batch import Header
from quothwire.errors import Disconnected, QuothError
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import FETCH_BYTES_MAX, WAIT_MS_MAX, Fetch, Fetched

FETCH_BYTES = 2**20
RECORDS_MAX = 2**32
NEWEST = -1
"""A cursor behind the newest record, wherever that is: it has to be found before anything is read."""
TAIL_WAIT_S = 30.0
"""How long the broker keeps a tail's request; a longer silence is a second request."""
AWAY_PAUSE_S = 0.5
"""How long a tail leaves a broker alone that is away or refuses for now."""
WAIT_S_MAX = WAIT_MS_MAX / 1_000

T = TypeVar("T")


def log_gap(gap: Gap) -> None:
    """What happens to a gap unless the application says otherwise: a warning in the log."""
    import logging  # most readers know no gap, and it takes long to load

    log = logging.getLogger("quoth")
    if gap.reason == "ahead":
        log.warning(
            "the cursor lies above the newest record topic=%r newest=%d next=%d",
            gap.topic,
            gap.after,
            gap.next,
        )
        return
    count = "some" if gap.records < 0 else str(gap.records)
    log.warning(
        "%s records are missing topic=%r reason=%s after=%d next=%d",
        count, gap.topic, gap.reason, gap.after, gap.next,
    )  # fmt: skip


class BatchCursor(ABC, Generic[T]):
    """A cursor that passes over the batches of one topic, and what it makes of them.

    after: the pointer up to which everything has been handed out or told. until: the last one that is wanted.
    """

    fetch_bytes = FETCH_BYTES
    """What it asks for at once."""

    def __init__(self, topic: str, after: int, on_gap: OnGap | None = None, until: int = POINTER_MAX) -> None:
        self.topic = topic
        self.after = after
        self.until = until
        self.seen = False
        """Has the topic answered once?"""
        self.looking = False
        """Is there more to look at, even if all of the last answer was damaged?"""
        self.is_time = False
        """Was the beginning given as a time? Such a cursor may lie above the newest record."""
        self._is_ahead = self._has_asked = False
        self._on_gap = on_gap or log_gap
        self._log_id = 0
        self._ordinal = -1
        self._old_after = -1
        """Where the cursor stood in a topic of the same name that is no more, until that has been told."""
        self.ahead: RequestState | None = None
        """What is to be asked for before it is needed."""
        self._ahead_of = -1
        """Behind which pointer that reads on."""

    @abstractmethod
    def _made(self, raw: memoryview, header: Header, skip: int) -> T | None:
        """What is handed out for a batch without so many of its first records, if anything is.

        Raises `QuothError` for a body that does not check.
        """

    @property
    def is_done(self) -> bool:
        """Has it reached its end?"""
        return self.after >= self.until

    @property
    def log_id(self) -> int:
        """The id of the topic's log, 0 as long as nothing is known of it."""
        return self._log_id

    @property
    def ordinal(self) -> int:
        """How many records the topic's log held up to the cursor, -1 if that is not known."""
        return self._ordinal

    def find_end(self) -> ClientCall[None]:
        """Begin behind the newest record, however long the broker is away; of a topic that does not exist yet
        get all."""
        try:
            answer = yield RequestState(Fetch(after=POINTER_MAX), self.topic)
        except QuothError as problem:
            if problem.code != "unknown_topic":
                raise
            self.after = 0
            return
        assert isinstance(answer.reply, Fetched)
        self.go_to_end(answer.reply)

    def go_to_end(self, reply: Fetched) -> None:
        """Begin behind the newest record."""
        self.after, self._ordinal, self._log_id = reply.newest, reply.end, reply.log
        self.seen = True

    def resume(self, after: int, log_id: int, ordinal: int) -> None:
        """Begin where another reader was done: `log_id` and `ordinal` as that one knew them, or 0 and -1."""
        self.after, self._log_id, self._ordinal = after, log_id, ordinal

    def first_wait(self, wait: float) -> float:
        """Seconds that the broker may keep the next question of a tail.

        It answers the first one at once if the cursor may lie above the newest record: the reader reports
        that first, not after a long silence.
        """
        is_sure = self._has_asked or self.seen or self.is_time or not self.after
        self._has_asked = True
        return wait if is_sure else 0.0

    def question(self, wait: float, bytes_max: int) -> Fetch:
        """What to ask the broker next, for whoever sends it by himself and hands the answer to `take`."""
        return self._fetch(self.after, self._ordinal, wait, bytes_max)

    def fetch(
        self, *, wait: float = 0.0, timeout: float, records_max: int = RECORDS_MAX
    ) -> ClientCall[Iterator[T]]:
        """The next batches, none if there is nothing above the cursor within `wait` seconds.

        timeout: seconds that the broker may take beyond that. The cursor moves, and gaps are told, while the
        batches are taken.
        """
        wait = min(wait, WAIT_S_MAX)
        exchange = self._exchange(self.after, self._ordinal, wait, records_max)
        exchange.deadline = deadline_in(wait + timeout)
        return self.take((yield exchange))

    def go_on(
        self, *, wait: float = 0.0, timeout: float, ahead_wait: float | None = None
    ) -> ClientCall[Iterator[T]]:
        """`fetch`, for whoever will go on: what follows is on its way while these batches are taken.

        That is to be asked for as soon as these steps are taken, see `ahead`. ahead_wait: how long the broker
        may keep it, None for `wait`.
        """
        wait = min(wait, WAIT_S_MAX)
        deadline = deadline_in(wait + timeout)
        answer = yield from self._answer_ahead(deadline)
        if answer is None or not (answer.payload or wait or self._is_end(answer)):  # there may be more by now
            exchange = self._exchange(self.after, self._ordinal, wait)
            exchange.deadline = deadline
            answer = yield exchange
        found = self.take(answer)
        self._ahead_of, ordinal = self._end_of(answer.payload)
        if ordinal >= 0 and self._ahead_of < self.until:
            self.ahead = self._exchange(self._ahead_of, ordinal, wait if ahead_wait is None else ahead_wait)
        return found

    def follow(self, timeout: float, ahead_wait: float = math.inf) -> ClientCall[Iterator[T]]:
        """`go_on`, for a tail: the broker waits for more."""
        wait = self.first_wait(TAIL_WAIT_S)
        return self.go_on(wait=wait, timeout=timeout, ahead_wait=min(ahead_wait, TAIL_WAIT_S))

    def pause_after(self, problem: QuothError) -> float:
        """The seconds after which a tail goes on after an error. Raises it if the tail does not."""
        if problem.code == "unknown_topic" and not self.seen:
            return 0.0  # the broker has waited for it
        if not problem.retryable:
            raise problem
        return AWAY_PAUSE_S

    def _answer_ahead(self, deadline: float) -> Generator[RequestState, Answer, Answer | None]:
        """The answer to what was asked for in advance, None if it is of no use any more.

        An error may have been one when it was said: whatever there is to say now will be said again.
        """
        exchange, self.ahead = self.ahead, None
        if exchange is None or self._ahead_of != self.after:
            return None
        exchange.expect(deadline)
        try:
            return (yield exchange)
        except Disconnected:
            raise
        except QuothError:
            return None

    def _exchange(
        self, after: int, ordinal: int, wait: float, records_max: int = RECORDS_MAX
    ) -> RequestState:
        return RequestState(
            self._fetch(after, ordinal, wait, self.fetch_bytes, records_max), self.topic, wait=wait
        )

    def _fetch(
        self, after: int, ordinal: int, wait: float, bytes_max: int, records_max: int = RECORDS_MAX
    ) -> Fetch:
        return Fetch(
            after=after,
            ordinal=ordinal,
            records_max=min(max(records_max, 1), RECORDS_MAX),
            bytes_max=bytes_max,
            wait_ms=math.ceil(wait * 1_000),
            until=self.until if self.until < POINTER_MAX else 0,
        )

    def _is_end(self, answer: Answer) -> bool:
        """Does an answer say that there is nothing more up to the end?"""
        return isinstance(answer.reply, Fetched) and answer.reply.next >= self.until

    def _end_of(self, payload: wire.Bytes) -> tuple[int, int]:
        """The last pointer of stored batches and the ordinal behind it; -1 for none, or for damage."""
        try:
            first = wire.parse_header(payload, self._log_id)
        except QuothError:
            return -1, -1
        size, last, ordinal = wire.whole(payload, self._log_id, first.base - 1, first.ordinal)
        return (last, ordinal) if size == len(payload) else (-1, -1)

    def take(self, answer: Answer) -> Iterator[T]:
        """The batches of an answer. The cursor moves, and gaps are told, while they are taken."""
        reply = answer.reply
        assert isinstance(reply, Fetched)
        self.seen = True
        if self._log_id not in (0, reply.log):
            # Made anew: none of its records has been read, wherever the cursor stood in the old one.
            self._old_after = self.after
            self.after, self._ordinal, self._log_id = 0, -1, reply.log
            self.looking = True
            return iter(())
        self._log_id = reply.log
        self.looking = bool(answer.payload)
        if not self.looking and reply.newest == self.after:
            self._ordinal = reply.end
        self._look_ahead(reply)
        return self._open(answer.payload, reply)

    def _look_ahead(self, reply: Fetched) -> None:
        """Tell once that the cursor lies above the newest record."""
        was_ahead, self._is_ahead = self._is_ahead, reply.newest < self.after and not self.is_time
        if self._is_ahead and not was_ahead:
            self._on_gap(Gap(self.topic, reply.newest, self.after + 1, 0, "ahead", reply.end))

    def _open(self, payload: wire.Bytes, reply: Fetched) -> Iterator[T]:
        view = memoryview(payload)
        position = 0
        while position < len(view):
            try:
                header = wire.parse_header(view, reply.log, position)
            except QuothError:
                if not position:  # not even the first one: step over all of it
                    self._tell(reply.next, -1, self._ordinal)
                    self._ordinal = -1
                return
            if header.base > self.until:
                break
            if not position:
                self._tell_front(header, reply)
            found = self._batch(view[position : position + header.size], header)
            position += header.size
            if found is not None:
                yield found
        if position < len(view) or reply.next >= self.until:
            self._reach_end(reply, nothing=not position)

    def _reach_end(self, reply: Fetched, *, nothing: bool) -> None:
        """Go to the end, behind which nothing is wanted. nothing: no batch lay in front of it."""
        before, self.after = self.after, max(self.after, self.until)
        reasons: dict[Reason, object] = {}
        if self._old_after >= 0:
            reasons["recreated"], before, self._old_after = True, self._old_after, -1
        elif nothing:
            begun = before > 0 or self._ordinal >= 0
            reasons = {"trimmed": begun and reply.gone > reply.damaged, "damaged": reply.damaged}
        for reason in filter(reasons.get, reasons):  # some of them may have lain behind the end
            self._on_gap(Gap(self.topic, before, self.until + 1, -1, reason, self._ordinal))

    def _tell_front(self, first: Header, reply: Fetched) -> None:
        """Tell what is missing between the cursor and the first batch of a reply."""
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
            # The cursor may stand anywhere, so nobody knows how many of them it had passed.
            damaged, removed = -bool(damaged), -bool(removed)
        else:
            removed = 0  # from the oldest one on, and what was before is no loss
            ordinal = first.ordinal - damaged
        before = self.after
        if removed or damaged:
            self.after = max(before, first.base - 1)
        if removed:
            self._on_gap(Gap(self.topic, before, first.base, removed, "trimmed", ordinal))
        if damaged:
            self._on_gap(Gap(self.topic, before, first.base, damaged, "damaged", _behind(ordinal, removed)))

    def _batch(self, raw: memoryview, header: Header) -> T | None:
        """Look at one batch and move the cursor behind it; None if its body is damaged."""
        if 0 <= self._ordinal < header.ordinal:
            self._tell(header.base - 1, header.ordinal - self._ordinal, self._ordinal)
        before = max(self.after, header.base - 1)
        self._ordinal = header.end_ordinal
        if header.last <= before:
            return None
        skip = before - header.base + 1
        try:
            made = self._made(raw, header, skip)
        except QuothError:
            self._tell(header.last, header.last - before, header.ordinal + skip)
            return None
        self.after, self.is_time = header.last, False
        return made

    def _tell(self, last: int, records: int, ordinal: int) -> None:
        """Tell that everything up to the pointer `last` is damaged, and step over it."""
        before, self.after = self.after, max(self.after, last)
        self._on_gap(Gap(self.topic, before, last + 1, records, "damaged", ordinal))


class RecordReader(BatchCursor[Batch]):
    """A cursor that hands out records."""

    def _made(self, raw: memoryview, _header: Header, skip: int) -> Batch | None:
        found = Batch.of(self.topic, wire.decode(raw, self._log_id), skip)
        return found if len(found) else None


def reader_from(
    topic: str, after: int | None, since: Timestamp | None, on_gap: OnGap | None, until: int = POINTER_MAX
) -> RecordReader:
    """A reader that begins behind the pointer `after`, or at a time, or with the oldest record."""
    reader = RecordReader(topic, cursor(after, since, 0), on_gap, until)
    reader.is_time = since is not None
    return reader


class StoredReader(BatchCursor[StoredBatch]):
    """A cursor that hands out whole batches as they are stored, the first of which may begin before it.

    Whoever takes them gathers some before he works on them, and with the next ones on their way meanwhile he
    does not wait for any: for that an answer has to hold as many.
    """

    fetch_bytes = FETCH_BYTES_MAX

    def _made(self, raw: memoryview, header: Header, _skip: int) -> StoredBatch:
        wire.body_of(raw, header)
        return StoredBatch(header, raw, self._log_id)


def _behind(ordinal: int, records: int) -> int:
    """The ordinal so many records further, as far as that is known."""
    return ordinal + records if ordinal >= 0 and records >= 0 else -1
