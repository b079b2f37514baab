"""The calls of a group: the requests of each, and the evaluation of the answers.

A client makes methods of them, see `quoth.core.calls`. Each creates the group if it is the first one.
"""

from __future__ import annotations

import math
import time
from itertools import islice
from typing import Generic, NamedTuple, Unpack

from quoth.core.calls import ClientState, ask
from quoth.core.options import deadline_in
from quoth.core.request_state import ClientCall, RequestState
from quoth.groups.member import GroupMember
from quoth.groups.options import GroupOptions, place
from quoth.groups.settlements import GIVEN_BACK_MS, GroupCall
from quoth.groups.stock import B, M
from quoth.reader import FETCH_BYTES, RECORDS_MAX
from quoth.timestamps import Timestamp, now
from quothwire.errors import NotFound, error
from quothwire.protocol.group_messages import (
    DeleteGroup,
    DescribeGroup,
    GroupInfo,
    ListPending,
    OpenGroup,
    Pending,
    SeekGroup,
    UpdateGroup,
)
from quothwire.protocol.group_settings import GivenGroupSettings, GroupSettings, as_sent
from quothwire.protocol.messages import FETCH_BYTES_MAX, Request
from quothwire.protocol.settlement import Settle

UNSETTLED = "its member has ended without settling it"


class GroupLag(NamedTuple):
    """The records that a group has not finished. seconds: the age of the oldest, 0 without any.

    gone: those that retention, a trim or damage took from the group since it was created.
    """

    records: int
    seconds: float
    gone: int


class PendingRange(NamedTuple):
    """Records from a first to a last pointer that were handed out and are not finished.

    attempts: how often. member: the one that has their lease; empty for none, and for one without a name.
    seconds: until the lease ends, or until the next hand-out. is_leased: True if a member has them.
    """

    first: int
    last: int
    attempts: int
    member: str
    seconds: float
    is_leased: bool


class GroupWork:
    """A group, and the client that executes its calls. is_opened: its first call has succeeded."""

    def __init__(self, client: ClientState, options: GroupOptions) -> None:
        self.topic, self.name = options.topic, options.name
        self.is_opened = False
        self._client = client
        self._options = options

    def _ask(self, request: Request) -> ClientCall[GroupInfo]:
        """Send a request that is answered by the state of the group, which is created before."""
        yield from opened(self)
        return (yield from ask(GroupInfo, request, self.topic, timeout=self._client.timeout))

    def _note_opened(self, _: GroupInfo) -> None:
        self.is_opened = True

    def _note_moved(self, info: GroupInfo) -> None:
        """Take note of a seek."""


def opened(group: GroupWork) -> ClientCall[None]:
    """Create the group, or look whether it exists, before anything else is done with it.

    Raises `Conflict` ``group_exists`` if it has other settings than those that were named, `NotFound`
    ``unknown_group``.
    """
    if not group.is_opened:
        options = group._options
        request: Request = DescribeGroup(options.name)
        if options.create:
            request = OpenGroup(options.name, options.start, options.settings)
        info = yield from ask(GroupInfo, request, options.topic, timeout=group._client.timeout)
        group._note_opened(info)


# -- the whole group ----------------------------------------------------------------------------------------


def info(group: GroupWork) -> ClientCall[GroupInfo]:
    """Describe the group: its settings, place, members and counts."""
    return group._ask(DescribeGroup(group.name))


def lag(group: GroupWork) -> ClientCall[GroupLag]:
    """Return how many records are not finished, the age of the oldest of them, and how many are gone."""
    found = yield from info(group)
    seconds = max(0.0, (now() - found.oldest) / 1e6) if found.lag else 0.0
    return GroupLag(found.lag, seconds, found.gone)


def checkpoint(group: GroupWork) -> ClientCall[int]:
    """Return the pointer up to which all records are finished."""
    return (yield from info(group)).after


def pending(group: GroupWork) -> ClientCall[list[PendingRange]]:
    """List what was handed out and is not finished, in the order of the pointers."""
    yield from opened(group)
    found: list[PendingRange] = []
    while True:
        after = found[-1].last if found else 0
        listing = ListPending(group.name, after)
        reply = yield from ask(Pending, listing, group.topic, timeout=group._client.timeout)
        rows = [_pending_range(*row) for row in zip(reply.ranges, reply.members, strict=True)]
        further = [row for row in rows if row.last > after]
        found += further
        if not further:
            return found


def _pending_range(bounds: list[int], member: str) -> PendingRange:
    first, last, attempts, milliseconds, token = bounds
    return PendingRange(first, last, attempts, member, milliseconds / 1_000, token != 0)


def seek(group: GroupWork, where: Timestamp) -> ClientCall[GroupInfo]:
    """Let the group go on at another place: ``begin``, ``end``, above a pointer, or at a time.

    No lease is left: what members hold now is handed out again if it lies behind that place, and their acks
    have no effect.
    """
    found = yield from group._ask(SeekGroup(group.name, place(where)))
    group._note_moved(found)
    return found


def pause(group: GroupWork) -> ClientCall[GroupInfo]:
    """Hand out nothing until `resume`. Leases go on."""
    return group._ask(UpdateGroup(group.name, paused=1))


def resume(group: GroupWork) -> ClientCall[GroupInfo]:
    """End a pause."""
    return group._ask(UpdateGroup(group.name, paused=0))


def update(group: GroupWork, **settings: Unpack[GivenGroupSettings]) -> ClientCall[GroupInfo]:
    """Change settings of the group, given as for `Client.group`; the others stay as they are."""
    sent = as_sent(settings)
    GroupSettings.of(sent)
    return group._ask(UpdateGroup(group.name, sent))


def delete(group: GroupWork) -> ClientCall[GroupInfo]:
    """Delete the group; returns its last state. The records of the topic stay.

    Raises `NotFound` ``unknown_group`` if there is none.
    """
    deadline = deadline_in(group._client.timeout)
    last = (yield RequestState(DescribeGroup(group.name), group.topic, deadline=deadline)).reply
    assert isinstance(last, GroupInfo)
    request = RequestState(DeleteGroup(group.name), group.topic, deadline=deadline)
    try:
        reply = (yield request).reply
    except NotFound:
        if not request.unanswered:
            raise
        return last  # a copy without an answer has deleted it
    assert isinstance(reply, GroupInfo)
    return reply


# -- consuming ----------------------------------------------------------------------------------------------


class ConsumerWork(GroupWork, Generic[M, B]):
    """A group with a member of this client. kinds: the classes of its messages and batches."""

    def __init__(
        self, client: ClientState, member: GroupMember, message_kind: type[M], batch_kind: type[B]
    ) -> None:
        super().__init__(client, member.options)
        self._member = member
        self._message_kind = message_kind
        self._batch_kind = batch_kind
        self._fetched: list[M] = []
        """Records that `fetch` has returned, and that were not settled when it was called the last time."""

    @property
    def member(self) -> str:
        """The name of the member."""
        return self._options.member

    def _note_opened(self, info: GroupInfo) -> None:
        super()._note_opened(info)
        self._member.configure(info)

    def _note_moved(self, info: GroupInfo) -> None:
        self._member.queue.outdated = info.generation - 1

    def _next_message(self) -> M | None:
        """Acknowledge the record that was handed out last, and return the next one that is at hand."""
        member = self._member
        member.finish_current()
        member.check()
        message = member.stock.next_message(self._message_kind)
        if message is not None:
            member.begin_body(message)
        return message

    def _next_batch(self) -> B | None:
        """Acknowledge the batch that was handed out last, and return the next one that is at hand."""
        member = self._member
        member.finish_current()
        member.check()
        batch = member.stock.next_batch(self._batch_kind)
        if batch is not None:
            member.begin_body(batch)
        return batch

    def _closing_seconds(self, problem: BaseException | None) -> float:
        """Return the seconds for which the end of the member waits for answers."""
        is_interrupted = problem is not None and not isinstance(problem, Exception)
        return self._client._timing.interrupted if is_interrupted else self._client.timeout

    def _leave(self, problem: BaseException | None) -> None:
        """Settle what an iteration has handed out last; give back what else is not settled."""
        if problem is None:
            self._member.finish_current()
        else:
            self._member.fail_current(problem)
        for message in self._fetched:
            if not message.is_settled:
                message._settle(Settle.NACK, GIVEN_BACK_MS, UNSETTLED)
        self._member.stock.release()

    def _note_fetched(self, found: list[M]) -> None:
        now = time.monotonic()
        left = [one for one in self._fetched if not one.is_settled and one._lease.deadline > now]
        self._fetched = left + found


def fetch(group: ConsumerWork[M, B], n: int = 100, timeout: float | None = None) -> GroupCall[list[M]]:
    """Return up to `n` records, as many as are at hand; none after `timeout` seconds without any.

    timeout: None for the client's timeout, 0 for not to wait. Each record is under a lease until it is
    settled by one of its methods. Raises what a wrong or deleted group raises, and the error of an earlier
    `ack` that was not waited for.
    """
    _checked_records(n)
    deadline = deadline_in(group._client.timeout if timeout is None else timeout)
    member = group._member
    member.finish_left()
    member.check()
    while True:
        is_there = yield from member.filled(n, FETCH_BYTES, deadline)
        at_hand = iter(lambda: member.stock.next_message(group._message_kind), None)
        found = [message for message in islice(at_hand, n) if message is not None]
        if found or not is_there:
            group._note_fetched(found)
            return found


def more(group: ConsumerWork[M, B]) -> GroupCall[M]:
    """Wait for the next record of an iteration, and for a broker that is not there."""
    member = group._member
    while (message := group._next_message()) is None:
        yield from member.filled(member.next_size(), FETCH_BYTES, math.inf, patiently=True)
    return message


def taken(group: ConsumerWork[M, B]) -> GroupCall[M | None]:
    """Return the next record, which the caller settles; None after a moment without any."""
    member, wait = group._member, group._member.timing.group_wait
    member.check()
    message = member.stock.next_message(group._message_kind)
    while message is None:
        ends = time.monotonic() + wait
        filling = member.filled(member.next_size(), FETCH_BYTES, ends, patiently=True, answered=2 * wait)
        if not (yield from filling):
            return None
        message = member.stock.next_message(group._message_kind)
    return message


def batches(_: ConsumerWork[M, B], n: int = 10_000) -> int:
    """Iterate over batches for ever: the fast path for many records.

    Each batch is settled as one. It is acknowledged when its body is left, as a record of an iteration over
    the group is. n: the most records that are fetched at once, in any number of batches.
    """
    return _checked_records(n)


def more_batches(group: ConsumerWork[M, B], n: int) -> GroupCall[B]:
    """Wait for the next batch of an iteration, and for a broker that is not there.

    Members that handle their batches quickly fetch the next ones meanwhile.
    """
    member = group._member
    while (batch := group._next_batch()) is None:
        member.next_size()
        yield from member.filled(n, FETCH_BYTES_MAX, math.inf, patiently=True)
        yield from member.fetch_ahead(n, FETCH_BYTES_MAX)
    return batch


def left(group: ConsumerWork[M, B], seconds: float) -> GroupCall[None]:
    """Wait until everything is settled, and give back what comes by then. Raises the first error of that."""
    member = group._member
    yield from member.drained(min(seconds, 2 * member.timing.group_wait))
    is_settled = yield from member.queue.settled(seconds)
    member.queue.check()
    if not is_settled and (acks := member.queue.unanswered):
        text = f"{'1 ack has' if acks == 1 else f'{acks} acks have'} no answer in time"
        raise error("timed_out", text, "records without an ack are handed out again")


def _checked_records(n: int) -> int:
    if not isinstance(n, int) or isinstance(n, bool) or not 0 < n <= RECORDS_MAX:
        raise error("bad_request", f"n is a number of records from 1 on, not {n!r:.100}")
    return n
