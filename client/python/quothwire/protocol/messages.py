"""The requests of clients and the replies of brokers.

The annotation of a field is its contract: the codec refuses a value that does not fit. A field without a
default is required. A request with an unknown field is refused. A reply may have unknown fields, which the
codec ignores, so that an older client understands a newer broker.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import Annotated, Any, ClassVar

from quothwire.pointer import POINTER_MAX
from quothwire.protocol.transaction import ANY, BATCHES_MAX, NEVER, PART_MAX, VERSION_MAX
from quothwire.protocol.value import BASE, LATER, Range, Value

WAIT_MS_MAX = 600_000
"""The broker ends a wait after ten minutes, so that a client that died costs nothing for longer."""
FETCH_BYTES_MAX = 4 * 2**20
"""A larger reply is not faster. One larger batch is still sent whole."""
TOPICS_MAX = 1_000
"""Names in one listing. `ListTopics.after` continues it."""
PARTS_MAX = 10_000
"""Parts of one range: as many tasks as a cluster runs at once, and a reply of 300 KB."""

Number = Annotated[int, Range(0, 2**64 - 1)]
POINTERS = Range(0, POINTER_MAX, "bad_pointer")
Pointer = Annotated[int, POINTERS]
Ordinal = Annotated[int, Range(-1, 2**63 - 1)]
Positive = Annotated[int, Range(1, 2**63 - 1)]
Bounds = Annotated[list[Number], Range(4, 4)]
Milliseconds = Annotated[int, Range(0, WAIT_MS_MAX)]
Version = Annotated[int, Range(0, VERSION_MAX)]


class Operation(IntEnum):
    """The operation of a request. The numbers are on the wire and never change."""

    HELLO = 1
    PING = 2
    PUBLISH = 3
    FETCH = 4
    LIST = 5
    DESCRIBE = 6
    CREATE = 7
    UPDATE = 8
    DELETE = 9
    TRIM = 10
    ROLL = 11
    STATUS = 12
    ADVANCE = 13
    SPLIT = 14
    COUNT = 15
    STAGE = 16
    PUBLISH_STAGED = 17
    ABORT = 18
    TRANSACTION = 19
    OPEN_GROUP = 20
    GROUP_FETCH = 21
    GROUP_SETTLE = 22
    DESCRIBE_GROUP = 23
    LIST_GROUPS = 24
    UPDATE_GROUP = 25
    SEEK_GROUP = 26
    DELETE_GROUP = 27
    LIST_PENDING = 28
    COMMIT_CURSOR = 29
    METRICS = 30


WITHOUT_TOPIC = frozenset(
    (Operation.HELLO, Operation.PING, Operation.LIST, Operation.STATUS, Operation.METRICS)
)
"""The operations on the broker as a whole. The frame of the topic is empty."""
WITH_PAYLOAD = frozenset(
    (Operation.PUBLISH, Operation.STAGE, Operation.PUBLISH_STAGED, Operation.GROUP_SETTLE)
)
"""The operations whose request may have a fourth frame."""
REQUESTS: dict[Operation, type[Request]] = {}
"""The request of every operation."""

Reply = Value
"""A message that answers a request."""


class Request(Value):
    """A message that asks for an operation. reply: the class of the answer."""

    __dataclass_fields__ = BASE
    operation: ClassVar[Operation]
    reply: ClassVar[type[Any]]

    def __init_subclass__(cls, operation: Operation, reply: type[Reply]) -> None:
        super().__init_subclass__()
        cls.operation, cls.reply = operation, reply
        REQUESTS[operation] = cls


class Welcome(Value):
    """The broker's version, its protocol versions, operations and limits, and the address of announcements.

    announcements: the URL to subscribe to; empty where the broker cannot know the address that clients use,
    or this address is not tcp. announcements_port: the port, at the host that the client connects to; 0 where
    each port of the broker has its own. See `quothwire.protocol.announcement.endpoint`.
    """

    server: str
    versions: list[int]
    operations: list[str]
    limits: dict[str, Any]
    announcements: str
    announcements_port: Annotated[int, Range(0, 65_535)] = field(default=0, metadata=LATER)


class Hello(Request, operation=Operation.HELLO, reply=Welcome):
    """Ask for the versions and limits of the broker, answered by `Welcome`. client: its name and version."""

    client: str = ""


class Pong(Value):
    """The broker's clock as a pointer."""

    time: Pointer


class Ping(Request, operation=Operation.PING, reply=Pong):
    """Ask for a sign of life, answered by `Pong` from the front end alone."""


class Published(Value):
    """The pointers of the published records, and the durability that they have.

    log: id of the topic's log. duplicate: the batch was stored before, and these are its first pointers.
    """

    log: Number
    first: Pointer
    last: Pointer
    count: Number
    durability: str
    duplicate: bool


class Publish(Request, operation=Operation.PUBLISH, reply=Published):
    """Append the batch in the payload, all of it or nothing. An empty durability means the topic's."""

    durability: str = ""


class Fetched(Value):
    """The answer to `Fetch`. The payload has the batches as they are stored.

    log: id of the topic's log, which seeds the header checksums. next: the cursor to go on with, equal to
    `after` if there was no record, and at least `until` if there is no further one up to there. newest: the
    newest pointer that can be read. gone: the number of records between the cursor and the first record sent
    that are no longer there (exact if the request has an ordinal, else an upper bound). end: the ordinal
    after the newest record. damaged: those of the gone records that were not removed and cannot be read.
    """

    log: Number
    next: Pointer
    newest: Pointer
    gone: Number
    end: Number
    damaged: Number = 0


class Fetch(Request, operation=Operation.FETCH, reply=Fetched):
    """Read whole batches of records with pointers above `after`, at least one if there is any.

    ordinal: the ordinal that the reader expects next, -1 if unknown. The limits are soft: the first batch is
    sent whatever its size, and it may have records at or below `after`. wait_ms: how long the broker keeps
    the request when there is no record yet, or no topic (unless the request has an ordinal, because then the
    reader knew the topic). until: no batch is sent whose first record lies above it; 0: no end. durability:
    ``synced`` for records that survive a loss of power alone, whatever the topic shows to others; empty or
    ``written`` for all that the topic shows.
    """

    after: Pointer = 0
    ordinal: Ordinal = -1
    records_max: Annotated[int, Range(1, 2**32)] = 2**32
    bytes_max: Annotated[int, Range(1, 2**32)] = 2**20
    wait_ms: Milliseconds = 0
    until: Pointer = field(default=0, metadata=LATER)
    durability: str = field(default="", metadata=LATER)


class Topics(Value):
    """Names of topics. Fewer than requested means that there are no more."""

    names: list[str]


class ListTopics(Request, operation=Operation.LIST, reply=Topics):
    """List names of topics above `after`, in the order of their UTF-8 bytes."""

    after: str = ""
    limit: Annotated[int, Range(1, TOPICS_MAX)] = TOPICS_MAX


class TopicInfo(Value):
    """One topic. first, last: its oldest and newest pointer, 0 if it is empty. count: its records.

    first_ordinal: the number of records before the oldest one. states: a letter a segment, oldest first: w
    for the active one, r for open, h for hibernating. counters: events since the start of the broker, and
    gauges.
    """

    name: str
    log: Number
    first: Pointer
    last: Pointer
    count: Number
    first_ordinal: Number
    bytes: Number
    segments: Number
    states: str
    settings: dict[str, Any]
    problem: str = ""
    counters: dict[str, Any] = field(default_factory=dict)


class DescribeTopic(Request, operation=Operation.DESCRIBE, reply=TopicInfo):
    """Ask for everything about one topic. Never opens a hibernating one."""


class CreateTopic(Request, operation=Operation.CREATE, reply=TopicInfo):
    """Create a topic with these settings, and the broker's defaults for the others."""

    settings: dict[str, Any] = field(default_factory=dict)


class UpdateTopic(Request, operation=Operation.UPDATE, reply=TopicInfo):
    """Change some settings of a topic."""

    settings: dict[str, Any] = field(default_factory=dict)


class Trimmed(Value):
    """The records and bytes that a trim removed, and the oldest pointer that is left (0: none)."""

    records: Number
    bytes: Number
    first: Pointer


class DeleteTopic(Request, operation=Operation.DELETE, reply=Trimmed):
    """Delete a topic and its records. Pending fetches get ``unknown_topic``.

    log: the id that the topic's log must have, so that a request that is sent twice does not delete a topic
    that was created in between; 0 for any.
    """

    log: Number = 0


class TrimTopic(Request, operation=Operation.TRIM, reply=Trimmed):
    """Remove the segments that have only records below `before`, the active one included."""

    before: Pointer


class RollTopic(Request, operation=Operation.ROLL, reply=TopicInfo):
    """Seal the active segment and begin a new one. No effect if it is empty."""


class Status(Value):
    """The state of the broker. uptime: seconds. states: topic name -> its letters, as in `TopicInfo`.

    clients: name of a client -> name of a quota -> what the client has, and its limit, -1 for none.
    """

    server: str
    pid: Number
    directory: str
    uptime: float
    topics: Number
    active: Number
    waits: Number
    counters: dict[str, Any]
    states: dict[str, Any]
    clients: dict[str, Any] = field(default_factory=dict, metadata=LATER)


class GetStatus(Request, operation=Operation.STATUS, reply=Status):
    """Ask for the state of the broker, with the states of some topics. Opens none of them."""

    after: str = ""
    limit: Annotated[int, Range(0, TOPICS_MAX)] = TOPICS_MAX


class Advance(Value):
    """The longest range (after, until] within the limits. If it is empty, both are equal.

    after: the beginning of the range, in front of the oldest record if some are gone. records: exactly as
    many as requested if there are so many, so that `until` may lie inside of a batch. bytes: those of the
    batches of these records; more than requested only for a single batch. gone: upper bound of the records
    that were removed between the `after` of the request and the oldest one. newest, end, log: see `Fetched`.
    """

    log: Number
    after: Pointer
    until: Pointer
    records: Number
    bytes: Number
    gone: Number
    newest: Pointer
    end: Number


class AdvanceTopic(Request, operation=Operation.ADVANCE, reply=Advance):
    """Ask how far so many records reach, from the first one above `after`. Answered by `Advance`."""

    after: Pointer = 0
    records_max: Positive = 2**63 - 1
    bytes_max: Positive = 2**63 - 1


class Parts(Value):
    """At most as many ranges as requested, in order, each as [after, until, records, bytes].

    None is empty, and none has more than twice its share of the records, unless it is one batch. gone,
    newest, end, log: as in `Advance`.
    """

    log: Number
    bounds: list[Bounds]
    gone: Number
    newest: Pointer
    end: Number


class SplitTopic(Request, operation=Operation.SPLIT, reply=Parts):
    """Divide the records in (after, until] into that many parts, between batches. Answered by `Parts`."""

    after: Pointer = 0
    until: Pointer = POINTER_MAX
    parts: Annotated[int, Range(1, PARTS_MAX)] = 1


class Count(Value):
    """The records of a range. bytes: those of the batches of these records.

    Damaged records count, too. first, last: pointers of records, 0 if none can be read. gone, newest, end,
    log: as in `Advance`.
    """

    log: Number
    records: Number
    bytes: Number
    gone: Number
    first: Pointer
    last: Pointer
    newest: Pointer
    end: Number


class CountTopic(Request, operation=Operation.COUNT, reply=Count):
    """Count the records in (after, until]. Answered by `Count`."""

    after: Pointer = 0
    until: Pointer = POINTER_MAX


class Staged(Value):
    """The staged batches of this attempt, their records and their bytes, headers included."""

    batches: Number
    records: Number
    bytes: Number


class Stage(Request, operation=Operation.STAGE, reply=Staged):
    """Store the batch in the payload for a transaction, invisible until that is published.

    part, attempt: its writer. number: the batches of this attempt before it, which are all there.
    """

    application: str
    version: Version
    part: Annotated[int, Range(0, PART_MAX)]
    attempt: Number
    number: Annotated[int, Range(0, BATCHES_MAX - 1)] = 0


class PublishStaged(Request, operation=Operation.PUBLISH_STAGED, reply=Published):
    """Append the parts that the payload names, one after the other, all or nothing. Answered by `Published`.

    parts: the number of parts in the payload, see `protocol.transaction`. Removes all other staged parts of
    the transaction. newest: publish only if this is the newest version of the application.
    """

    application: str
    version: Version
    parts: Annotated[int, Range(0, BATCHES_MAX)]
    newest: Annotated[int, Range(ANY, VERSION_MAX)] = field(default=ANY, metadata=LATER)


class TransactionInfo(Value):
    """The state of a transaction: published, staged (some of its parts are there) or unknown.

    log: id of the topic's log. first, last, count: its records, if it is published. parts, batches, records,
    bytes: what is staged, each attempt counted as a part; in the answer to an abort, what was removed.
    newest_version: the highest version that the application has published here, -1 if none is known.
    """

    log: Number
    state: str
    first: Pointer
    last: Pointer
    count: Number
    parts: Number
    batches: Number
    records: Number
    bytes: Number
    newest_version: Annotated[int, Range(NEVER, VERSION_MAX)]


class AbortTransaction(Request, operation=Operation.ABORT, reply=TransactionInfo):
    """Remove the staged parts of a transaction; a published one stays. Answered by `TransactionInfo`."""

    application: str
    version: Version


class GetTransaction(Request, operation=Operation.TRANSACTION, reply=TransactionInfo):
    """Ask for the state of a transaction. Answered by `TransactionInfo`."""

    application: str
    version: Version
