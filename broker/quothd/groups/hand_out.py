"""Fetches for groups: finds the records, reads them, gives a lease on them.

A fetch gets what has to be handed out again first, then new records. One fetch of a group reads at a time;
the others wait until it has its records, so that no two get the same ones.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from quothd.groups.administration import check_new_group
from quothd.groups.dead_letters import DeadLetters
from quothd.groups.readiness import check_member
from quothd.groups.store import GroupStore
from quothd.requests.events import GroupReady, Query, ReadDone
from quothd.requests.pending_request import PendingRequest
from quothlog.groups import events
from quothlog.groups.group_state import GivenLease, GroupState, HandOut
from quothlog.groups.key_order import hashes_of
from quothlog.groups.selection import ChosenRecords, select
from quothlog.groups.spans import Span
from quothlog.reading.read_request import ReadLoss, ReadRequest
from quothlog.reading.segment_reader import Extract
from quothwire.batch import Bytes
from quothwire.errors import error
from quothwire.protocol.group_messages import GroupFetch, GroupFetched, OpenGroup
from quothwire.protocol.group_settings import AT_MOST_ONCE, CURSOR, LEASE_TOTAL_S_MAX

LEASES_MAX = 1_000
"""Leases in one reply."""
AT_HAND_BYTES = 2 * 2**20
"""What is read from memory without a reader thread: 10,000 records of 100 bytes, which a member asks for, are
a little more than a MiB. The way through a thread costs a fifth of the processor time of such a fetch."""
READS_IN_VAIN_MAX = 30
"""Reads of one fetch that find only records that are gone, or that an earlier one of their key blocks."""
HELD_S = 1.0
"""Time until a fetch looks again at a group that may not divide a span."""
_COUNTER_BITS = 32


@dataclass(slots=True)
class _Hand:
    """The state of one fetch. token: of its leases. bytes_left, records_left: of what it asks for.

    again: the spans that were not new. origin: the cursor and its ordinal before this fetch got new records,
    None if it has none. lost: the records that were gone, and damaged, in front of these. is_cut: it ended
    before it found all that there is. is_held: the next span is too large, and may not be divided.
    """

    request: PendingRequest
    asked: GroupFetch
    group: GroupState
    token: int
    records_left: int
    bytes_left: int
    spans: list[Span] = field(default_factory=list)
    again: list[Span] = field(default_factory=list)
    passed: list[Span] = field(default_factory=list)
    batches: list[Bytes] = field(default_factory=list)
    step: HandOut | None = None
    origin: tuple[int, int] | None = None
    lost: list[ReadLoss] = field(default_factory=list)
    is_cut: bool = False
    is_held: bool = False

    @property
    def is_full(self) -> bool:
        """True if the fetch gets no more."""
        is_alone = self.step is not None and self.step.is_alone and bool(self.spans)
        return is_alone or self.records_left <= 0 or self.bytes_left <= 0 or len(self.spans) >= LEASES_MAX

    def take(self, spans: list[Span], chosen: ChosenRecords, *, is_new: bool) -> None:
        """Add spans that are handed out, and the batches in which their records lie."""
        self.spans += spans
        self.again += spans if not is_new else []
        if not spans:
            return
        self.batches += chosen.batches
        self.records_left -= sum(span.records for span in spans)
        self.bytes_left -= sum(map(len, chosen.batches))


class HandOuts:
    """The fetches of the groups of one topic. Owned by the topic.

    submit: gives a query to a reader thread. found_bytes: what the last fetch has returned.
    """

    def __init__(
        self,
        store: GroupStore,
        letters: DeadLetters,
        submit: Callable[[PendingRequest, Query], None],
    ) -> None:
        self._store = store
        self._letters = letters
        self._submit = submit
        self.found_bytes = 0
        self._reading: dict[str, _Hand] = {}
        self._waiting: defaultdict[str, list[PendingRequest]] = defaultdict(list)
        self._released: list[PendingRequest] = []
        self._tokens = secrets.randbits(31) << _COUNTER_BITS
        """Those of another opening begin elsewhere."""

    def fetch(self, request: PendingRequest, now: float) -> None:
        """Execute a fetch, or begin to. Raises `QuothError`, or OSError."""
        may_open = request.responder.opens_groups and not request.group
        request.begin_group_fetch(now)
        asked: GroupFetch = request.message
        check_member(asked.member)
        if may_open and asked.group not in self._store.table().by_name:
            settings = check_new_group(OpenGroup(asked.group), self._store.topic, request.client)
            self._store.create(asked.group, settings, 0, now, request.client)
        group = self._store.table().by_name.get(asked.group)
        if group is None:
            self._store.events.add(GroupReady(asked.group, now))  # the next one that waits is refused, too
            group = self._store.group(asked.group)
        if group.settings.mode == CURSOR:
            raise error("bad_request", f"{group.name!r} is a cursor: it has no leases")
        if group.name in self._reading:
            self._waiting[group.name].append(request)
            return
        group.members.see(asked.member, now)
        group.used = self._store.now()
        group.expire(now)
        self._letters.take(group, now)
        if group.settings.key_order and (group.spans.unknown or group.next_dying() is not None):
            self._read_keys(group)
        size = request.reply_bytes_max(asked.bytes_max)
        self._tokens += 1
        self._go_on(_Hand(request, asked, group, self._tokens, asked.records_max, size), now)

    def go_on(self, done: ReadDone, now: float) -> None:
        """Go on with a fetch for which a reader thread has read. Raises what that raised."""
        hand = self._reading.pop(done.request.group)
        self._released += self._waiting.pop(done.request.group, ())
        if done.problem is not None:
            raise done.problem
        assert isinstance(done.query, ReadRequest), "that was submitted"
        assert hand.step is not None, "it was read for that"
        if self._store.group(hand.group.name) is not hand.group:
            self.fetch(hand.request, now)
            return
        if hand.step.is_next(hand.group):
            self._take(hand, done.query, done.found, now)
        self._go_on(hand, now)

    def take_waiting(self) -> list[PendingRequest]:
        """Return the fetches that waited for one that was reading, to be executed again."""
        released, self._released = self._released, []
        return released

    # -- inside ---------------------------------------------------------------------------------------------

    def _read_keys(self, group: GroupState) -> None:
        """Read the keys of the records that are not free since a restart: they hold up others."""
        log = self._store.log
        for span in group.spans.unread():
            try:
                found = log.fetch(span.after, 1)
            except OSError:
                continue  # it may be handed out before that one is finished, but the group goes on
            chosen = select(found, log.log_id, span.after, span.until, 1) if found is not None else None
            if chosen is not None:
                (key,) = hashes_of(chosen.batches, log.log_id, chosen.records)
                group.hold(span, chosen, key)

    def _go_on(self, hand: _Hand, now: float) -> None:
        """Hand out until the fetch has what it asks for, or a reader thread has to read for it.

        One that waits for records of other keys than those that are blocked lets other requests go first.
        """
        group, log = hand.group, self._store.log
        in_vain = 0
        while not hand.is_full:
            if in_vain >= READS_IN_VAIN_MAX and (hand.spans or hand.request.deadline > now):
                hand.is_cut = True
                break
            before = len(hand.spans)
            most = self._store.config.group_pending_max
            step = group.next_hand_out(hand.records_left, most, now, self._store.count)
            if step is None or (step.is_alone and hand.spans):
                break
            hand.step = step
            request = log.lookup(step.after, step.records_max, hand.bytes_left)
            try:
                found = _read_quickly(request)
            except OSError:
                if hand.spans:
                    break  # the next fetch will find the problem
                raise
            if request is not None and request.sealed and found is None:
                if hand.spans:
                    break  # it has something, so it need not wait for a disk
                self._reading[group.name] = hand
                self._submit(hand.request, request)
                return
            if not self._take(hand, request, found, now):
                break
            in_vain += len(hand.spans) == before
        self._answer(hand, now)

    def _take(self, hand: _Hand, request: ReadRequest | None, found: Extract | None, now: float) -> bool:
        """Hand out what was read, or pass over what is gone; returns False if there is nothing, now."""
        step, group, log = hand.step, hand.group, self._store.log
        assert step is not None, "it was read for that"
        chosen = None
        if found is not None:
            chosen = select(found, log.log_id, step.after, step.until, step.records_max)
        if chosen is not None and found is not None:
            if group.is_divided and step.span is not None and _divides(step, chosen, found, group):
                hand.is_held = True
                return False
            self._lease(hand, step, found, chosen, now)
            return True
        is_over = request is None or not request.sealed or found is not None
        beyond = step.until if is_over or request is None else min(step.until, request.beyond)
        if step.span is not None:
            return self._pass_over(hand, step.span, beyond)
        if not is_over:
            group.cursor = max(group.cursor, beyond)  # there is no record up to there any more
        return not is_over

    def _lease(self, hand: _Hand, step: HandOut, found: Extract, chosen: ChosenRecords, now: float) -> None:
        """Give a lease on records that were read, to a member that has not as many as it wants."""
        group, asked, log = hand.group, hand.asked, self._store.log
        seconds = asked.lease_ms / 1_000 if asked.lease_ms else group.settings.lease
        lease = GivenLease(hand.token, asked.member, now + seconds, now + LEASE_TOTAL_S_MAX)
        span = step.span
        if span is None:
            hand.origin = hand.origin or (group.cursor, group.ordinal)
            hand.lost.append(log.loss(step.after, group.ordinal, found))
            group.lose(*hand.lost[-1])
        until = _end_of(step, chosen, found)
        if group.settings.key_order and (span is None or span.extents is None):
            keys = hashes_of(chosen.batches, log.log_id, chosen.records)
            spans = group.lease_by_key(span, chosen, keys, hand.records_left, lease)
        elif span is None:
            spans = [group.lease_new(chosen, lease)]
        else:
            spans = [group.lease_again(span, until, chosen, lease)]
        hand.take(spans, chosen, is_new=span is None)

    def _pass_over(self, hand: _Hand, span: Span, until: int) -> bool:
        """Finish the part of a span up to a pointer, which holds no record any more."""
        group = hand.group
        passed = group.ack(span.after + 1, until)
        group.lose(sum(one.records for one in passed if one.extents is not None), 0)
        hand.passed += passed
        group.finish(passed)
        return bool(passed)

    def _answer(self, hand: _Hand, now: float) -> None:
        """Answer a fetch, once what has to survive a restart is in the log of the groups."""
        group, store, request = hand.group, self._store, hand.request
        leases = _rows(hand.spans, group)
        last = self._log(hand, now)
        if group.settings.mode == AT_MOST_ONCE:
            for span in hand.spans:
                group.finish([span])
        if hand.spans:
            store.announce(group, now)
            reply = self._reply(hand, leases)
            payload = hand.batches[0] if len(hand.batches) == 1 else b"".join(hand.batches)
            self.found_bytes = len(payload)
            measures = store.events.measures
            measures.records_out += hand.asked.records_max - hand.records_left
            measures.bytes_out += self.found_bytes
            store.answer(request, reply, last, store.is_synced(group), payload)
        elif request.deadline > now:
            request.after = store.readiness_of(group, now).after
            request.retry = now if hand.is_cut else group.waits_until(now)
            if hand.is_held:
                request.retry = now + HELD_S
            store.events.wait(request)
        else:
            store.events.reply(request, self._reply(hand, []))

    def _log(self, hand: _Hand, now: float) -> int:
        """Log a hand-out before it is done; returns the pointer to wait for.

        A first hand-out need not be synced: after a power cut no record had to do with it. If logging
        fails, the records are free again, as if they had not been read.
        """
        group = hand.group
        finished = [*hand.passed]
        if group.settings.mode == AT_MOST_ONCE:
            finished += hand.spans
        if not finished and not hand.spans:
            return 0
        attempted = hand.spans if group.settings.key_order else hand.again
        changes = [events.attempted(group, attempted)] if attempted else []
        try:
            last = self._store.change([*changes, events.settled(group, finished)], now)
            return last if finished or hand.again else 0
        except BaseException:
            group.take_back(hand.again)
            if hand.origin is not None:
                group.take_back_new(*hand.origin)
            for gone, damaged in hand.lost:
                group.lose(-gone, -damaged)
            raise

    def _reply(self, hand: _Hand, leases: list[list[int]]) -> GroupFetched:
        log, group = self._store.log, hand.group
        lease_ms = hand.asked.lease_ms or round(group.settings.lease * 1_000)
        losses = group.losses.take()
        return GroupFetched(
            log.log_id, group.generation, leases, lease_ms, *losses, log.newest, log.end_ordinal
        )


def _end_of(step: HandOut, chosen: ChosenRecords, found: Extract) -> int:
    """Return the last pointer that the chosen records of a hand-out stand for."""
    return step.until if chosen.is_all and found.next >= step.until else chosen.last


def _divides(step: HandOut, chosen: ChosenRecords, found: Extract, group: GroupState) -> bool:
    """Return True if handing out the chosen records of a free span makes several spans of it."""
    is_by_key = group.settings.key_order and step.span is not None and step.span.extents is None
    return _end_of(step, chosen, found) < step.until or (is_by_key and chosen.records > 1)


def _read_quickly(request: ReadRequest | None) -> Extract | None:
    """Read what needs no disk, and the active segment. Raises OSError."""
    if request is None:
        return None
    return request.read_at_hand(AT_HAND_BYTES) if request.sealed else request.read()


def _rows(spans: list[Span], group: GroupState) -> list[list[int]]:
    """Return leases as `GroupFetched` has them; those on consecutive records are one."""
    rows: list[list[int]] = []
    for span in spans:
        assert span.lease is not None, "it was handed out"
        token = 0 if group.settings.mode == AT_MOST_ONCE else span.lease.token
        first, last = span.bounds
        if rows and rows[-1][:2] == [token, span.attempts] and rows[-1][3] == first - 1:
            rows[-1][3] = last
        else:
            rows.append([token, span.attempts, first, last])
    return rows
