"""The requests about consumer groups and their replies.

A record is in one of three states for a group: finished (acknowledged, or a dead letter), handed out, or not
handed out yet. `GroupFetch` hands records out under a lease, `GroupSettle` says what became of them.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any

from quothwire.pointer import POINTER_MAX
from quothwire.protocol.group_settings import LEASE_S_MAX
from quothwire.protocol.messages import Milliseconds, Number, Operation, Pointer, Request
from quothwire.protocol.settlement import ROWS_MAX
from quothwire.protocol.value import Range, Value

GROUPS_MAX = 100
"""Groups in one listing. `ListGroups.after` continues it."""
PENDING_MAX = 1_000
"""Ranges in one listing. `ListPending.after` continues it."""
END = -1
"""The place behind the newest record."""
GENERATIONS_MAX = 2**20
"""Generations of one group: those of a group that was deleted are none of the next one of its name."""

LEASE_MS_MAX = int(LEASE_S_MAX * 1_000)
Place = Annotated[int, Range(END, POINTER_MAX, "bad_pointer")]


def first_generation(number: int) -> int:
    """Return the generation in which a group begins. number: how many groups its topic has had, with it."""
    return 1 + (number - 1) * GENERATIONS_MAX


def moves_of(generation: int) -> int:
    """Return how often a group was moved up to a generation."""
    return (generation - 1) % GENERATIONS_MAX


class GroupInfo(Value):
    """One group.

    log: id of the topic's log. after: all records up to this pointer are finished. cursor: all records above
    it were never handed out. lag: the records that are not finished. oldest: the pointer of the first of
    them, 0 for none. newest: the newest pointer of the topic. in_flight: records under a lease. pending:
    records that were handed out and are not finished. redelivered, dead, gone: counted since the group was
    created; gone are those that retention removed, or damage, before they were finished. members: for each a
    map of its name, the records in flight and the seconds since its last request. idle: seconds since any
    request. problem: the reason for which dead letters cannot be written, or how long the group was not used
    although it has lag; empty for none.
    """

    log: Number
    group: str
    settings: dict[str, Any]
    generation: Number
    paused: bool
    after: Pointer
    cursor: Pointer
    lag: Number
    oldest: Pointer
    newest: Pointer
    in_flight: Number
    pending: Number
    redelivered: Number
    dead: Number
    gone: Number
    members: list[dict[str, Any]]
    idle: float
    problem: str = ""


class OpenGroup(Request, operation=Operation.OPEN_GROUP, reply=GroupInfo):
    """Create a group, unless it exists. Answered by `GroupInfo`.

    start: a new group begins above this pointer, or at the end. settings: of a new group, with the defaults
    for the others; an existing group must have those that are named.
    """

    group: str
    start: Place = 0
    settings: dict[str, Any] = field(default_factory=dict)


class GroupFetched(Value):
    """The leases of a member. The payload has the batches, which may hold other records, too.

    leases: [token, attempts, first pointer, last pointer] of each; the records between are the member's.
    lease_ms: for so long, counted by the broker from its answer on. gone: the number of records that were
    removed, or damaged, before the group could hand them out, since its last reply that says so; damaged:
    those of them that are damaged. newest, end, log: see `Fetched`.
    """

    log: Number
    generation: Number
    leases: list[Annotated[list[Number], Range(4, 4)]]
    lease_ms: Number
    gone: Number
    damaged: Number
    newest: Pointer
    end: Number


class GroupFetch(Request, operation=Operation.GROUP_FETCH, reply=GroupFetched):
    """Ask for records of a group under a lease. Answered by `GroupFetched`.

    member: the name that the group's state shows. records_max: exact. bytes_max: soft, as for `Fetch`.
    wait_ms: how long the broker keeps the request while there is nothing to hand out. lease_ms: 0 for the
    group's.
    """

    group: str
    member: str = ""
    records_max: Annotated[int, Range(1, 2**32)] = 100
    bytes_max: Annotated[int, Range(1, 2**32)] = 2**20
    wait_ms: Milliseconds = 0
    lease_ms: Annotated[int, Range(0, LEASE_MS_MAX)] = 0


class GroupSettled(Value):
    """The outcome. records: those that are finished by this request and were not before. late: those of them
    that were no more under the lease of their token. lost: the ranges of nacks, extensions and terminations,
    or in them, that had no effect, since the member has lost their lease; all rows of another generation.
    durability: the level that the acks have.
    """

    records: Number
    late: Number
    lost: list[Annotated[list[Number], Range(2, 2)]]
    durability: str


class GroupSettle(Request, operation=Operation.GROUP_SETTLE, reply=GroupSettled):
    """Say what became of records: see `protocol.settlement` for the rows in the payload.

    Answered by `GroupSettled` once the acks have their durability. An ack finishes records, whether their
    lease has expired or not. A nack lets them be handed out again, an extension keeps the lease, a
    termination makes dead letters of them. generation: of the leases; rows of an earlier one have no effect.
    0: whatever it is. reason: of the terminations.
    """

    group: str
    rows: Annotated[int, Range(0, ROWS_MAX)]
    generation: Number = 0
    reason: str = ""


class DescribeGroup(Request, operation=Operation.DESCRIBE_GROUP, reply=GroupInfo):
    """Ask for everything about one group. Answered by `GroupInfo`."""

    group: str


class Groups(Value):
    """Groups of a topic, each as a map with the fields of `GroupInfo` that need no read of the log."""

    groups: list[dict[str, Any]]


class ListGroups(Request, operation=Operation.LIST_GROUPS, reply=Groups):
    """List groups of a topic with names above `after`, in the order of their UTF-8 bytes."""

    after: str = ""
    limit: Annotated[int, Range(1, GROUPS_MAX)] = GROUPS_MAX


class UpdateGroup(Request, operation=Operation.UPDATE_GROUP, reply=GroupInfo):
    """Change settings of a group. paused: 1 to hand out nothing, 0 to go on, -1 for no change."""

    group: str
    settings: dict[str, Any] = field(default_factory=dict)
    paused: Annotated[int, Range(-1, 1)] = -1


class SeekGroup(Request, operation=Operation.SEEK_GROUP, reply=GroupInfo):
    """Let a group go on above a pointer, or at the end, and begin another generation: no lease is left."""

    group: str
    after: Place


class DeleteGroup(Request, operation=Operation.DELETE_GROUP, reply=GroupInfo):
    """Delete a group with its state. Answered by its last `GroupInfo`."""

    group: str


class Pending(Value):
    """Ranges that are handed out and not finished.

    ranges: [first pointer, last pointer, attempts, milliseconds, token] of each; the token is 0 without a
    lease. milliseconds: until the lease expires, or until the next hand-out. members: that of each, empty
    without a lease.
    """

    ranges: list[Annotated[list[Number], Range(5, 5)]]
    members: list[str]


class ListPending(Request, operation=Operation.LIST_PENDING, reply=Pending):
    """List the ranges above a pointer that are handed out and not finished. Answered by `Pending`."""

    group: str
    after: Pointer = 0
    limit: Annotated[int, Range(1, PENDING_MAX)] = PENDING_MAX


class CommitCursor(Request, operation=Operation.COMMIT_CURSOR, reply=GroupInfo):
    """Move the pointer of a group of mode ``cursor`` forward, never back. Answered by `GroupInfo`.

    generation: that in which the records were read; another one has no effect. 0: whatever it is.
    """

    group: str
    pointer: Pointer
    generation: Number = 0
