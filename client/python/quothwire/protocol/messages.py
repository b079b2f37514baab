"""What clients and brokers say to each other: every request and every reply as a value.

A field's annotation is its contract: the codec refuses whatever does not fit it before anybody looks at
the value. A field without a default is required. A request is refused for a field that it does not have; in
a reply such a field is passed over, so that an older client understands a newer broker.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import Annotated, Any, ClassVar

from quothwire.pointer import POINTER_MAX
from quothwire.protocol.bounds import LATER, Bounds, Number, Ordinal, Pointer, Positive, Range
from quothwire.protocol.transaction import ANY, BATCHES_MAX, NEVER, PART_MAX, VERSION_MAX
from quothwire.protocol.value import Value

WAIT_MS_MAX = 600_000
"""A wait is forgotten after ten minutes at the latest: a client that died costs nothing for longer."""
FETCH_BYTES_MAX = 4 * 2**20
"""A reply above it is not faster; one larger batch is still sent whole."""
TOPICS_MAX = 1_000
"""Names in one listing; `ListTopics.after` continues it."""
PARTS_MAX = 10_000
"""Of one stretch: as many tasks as a cluster runs at once, and a reply of 300 KB."""

Milliseconds = Annotated[int, Range(0, WAIT_MS_MAX)]
Version = Annotated[int, Range(0, VERSION_MAX)]


class Operation(IntEnum):
    """What a request asks for. The numbers are on the wire and never change."""

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


class Hello(Value):
    """Who is calling? Answered by `Welcome`."""

    operation: ClassVar[Operation] = Operation.HELLO
    client: str = ""


class Welcome(Value):
    """The broker's version, the protocol versions and operations it knows, its limits, where it announces.

    announcements: the URL to subscribe to; empty where the broker cannot know by which address it is reached,
    or is not reached over tcp. announcements_port: the port, at the host by which the client reached the
    broker; 0 where each port of the broker has its own. See `quothwire.protocol.announcement.endpoint`.
    """

    server: str
    versions: list[int]
    operations: list[str]
    limits: dict[str, Any]
    announcements: str
    announcements_port: Annotated[int, Range(0, 65_535)] = field(default=0, metadata=LATER)


class Ping(Value):
    """Is somebody there? Answered by `Pong` by the front end alone."""

    operation: ClassVar[Operation] = Operation.PING


class Pong(Value):
    """The broker's clock as a pointer."""

    time: Pointer


class Publish(Value):
    """Append the batch in the payload, all of it or nothing. An empty durability is the topic's own."""

    operation: ClassVar[Operation] = Operation.PUBLISH
    durability: str = ""


class Published(Value):
    """The pointers that the records got, and the level that is reached.

    log: id of the topic's log. duplicate: this batch was stored before; these are its first pointers.
    """

    log: Number
    first: Pointer
    last: Pointer
    count: Number
    durability: str
    duplicate: bool


class Fetch(Value):
    """Whole batches of records with pointers above `after`, at least one when there is any.

    ordinal: the ordinal that the reader expects next, -1 if it does not know. The limits are soft: the
    first batch is sent whatever its size, and it may hold records at or below `after`. wait_ms: how long
    the broker keeps the request when there is nothing yet, or no topic (unless the reader says an ordinal
    and so knew it). until: no batch is sent whose first record lies above it; 0: there is no end.
    """

    operation: ClassVar[Operation] = Operation.FETCH
    after: Pointer = 0
    ordinal: Ordinal = -1
    records_max: Annotated[int, Range(1, 2**32)] = 2**32
    bytes_max: Annotated[int, Range(1, 2**32)] = 2**20
    wait_ms: Milliseconds = 0
    until: Pointer = field(default=0, metadata=LATER)


class Fetched(Value):
    """The answer to `Fetch`; the payload holds the batches as they are stored.

    log: id of the topic's log, which seeds the header checksums. next: the cursor to go on with, equal to
    `after` when there was nothing, and at least `until` when there is nothing more up to there. newest: the
    newest pointer that can be read. gone: how many records between the cursor and the first record sent are
    not there any more (exact if the request said its ordinal, else at most so many). end: the ordinal after
    the newest record. damaged: how many of those that are gone were not removed, but cannot be read.
    """

    log: Number
    next: Pointer
    newest: Pointer
    gone: Number
    end: Number
    damaged: Number = 0


class ListTopics(Value):
    """Names of topics above `after`, in the order of their UTF-8 bytes."""

    operation: ClassVar[Operation] = Operation.LIST
    after: str = ""
    limit: Annotated[int, Range(1, TOPICS_MAX)] = TOPICS_MAX


class Topics(Value):
    """Names of topics; fewer than asked for means that there are no more."""

    names: list[str]


class DescribeTopic(Value):
    """All that is known about one topic. Never wakes it."""

    operation: ClassVar[Operation] = Operation.DESCRIBE


class TopicInfo(Value):
    """One topic. first, last: its oldest and newest pointer, 0 if it is empty. count: records kept.

    first_ordinal: records that were there before the oldest one. states: a letter a segment, oldest first:
    w the one being written, r open for reading, h hibernating. counters: what happened since the broker was
    started, and how things stand.
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


class CreateTopic(Value):
    """Make a topic with these settings, the broker's defaults for the rest."""

    operation: ClassVar[Operation] = Operation.CREATE
    settings: dict[str, Any] = field(default_factory=dict)


class UpdateTopic(Value):
    """Change some settings of a topic."""

    operation: ClassVar[Operation] = Operation.UPDATE
    settings: dict[str, Any] = field(default_factory=dict)


class DeleteTopic(Value):
    """Delete a topic and its records. Who waits on it gets ``unknown_topic``.

    log: the id that the topic's log must have, so that a request that is sent twice does not delete what
    was made anew in between; 0 for any.
    """

    operation: ClassVar[Operation] = Operation.DELETE
    log: Number = 0


class TrimTopic(Value):
    """Remove the segments that hold only records below `before`, the active one included."""

    operation: ClassVar[Operation] = Operation.TRIM
    before: Pointer


class Trimmed(Value):
    """What a trim removed, and the oldest pointer that is left (0: the topic is empty)."""

    records: Number
    bytes: Number
    first: Pointer


class RollTopic(Value):
    """Seal the active segment and begin a new one; nothing happens if it is empty."""

    operation: ClassVar[Operation] = Operation.ROLL


class GetStatus(Value):
    """The broker as a whole, with the states of some topics. Wakes none."""

    operation: ClassVar[Operation] = Operation.STATUS
    after: str = ""
    limit: Annotated[int, Range(0, TOPICS_MAX)] = TOPICS_MAX


class Status(Value):
    """The broker as a whole. uptime: seconds. states: topic name -> its letters, as in `TopicInfo`."""

    server: str
    pid: Number
    directory: str
    uptime: float
    topics: Number
    active: Number
    waits: Number
    counters: dict[str, Any]
    states: dict[str, Any]


class AdvanceTopic(Value):
    """How far do so many records reach, from the first one above `after` on? Answered by `Advance`."""

    operation: ClassVar[Operation] = Operation.ADVANCE
    after: Pointer = 0
    records_max: Positive = 2**63 - 1
    bytes_max: Positive = 2**63 - 1


class Advance(Value):
    """The longest stretch (after, until] within the limits. Nothing there: both are the same.

    after: where it begins, which is where what is kept begins if something is gone. records: exactly as many
    as asked for if there are so many, so `until` may lie inside of a batch. bytes: stored ones of the batches
    that they lie in; more than asked for only if there is one batch. gone: records that were removed between
    the `after` of the request and the first one kept, at most. newest, end, log: as in `Fetched`.
    """

    log: Number
    after: Pointer
    until: Pointer
    records: Number
    bytes: Number
    gone: Number
    newest: Pointer
    end: Number


class SplitTopic(Value):
    """Divide what is kept of (after, until] between batches into that many parts. Answered by `Parts`."""

    operation: ClassVar[Operation] = Operation.SPLIT
    after: Pointer = 0
    until: Pointer = POINTER_MAX
    parts: Annotated[int, Range(1, PARTS_MAX)] = 1


class Parts(Value):
    """At most as many stretches as asked for, in order, each as [after, until, records, bytes].

    None is empty, and none holds more than twice its share of the records, unless it is one batch. gone,
    newest, end, log: as in `Advance`.
    """

    log: Number
    bounds: list[Bounds]
    gone: Number
    newest: Pointer
    end: Number


class CountTopic(Value):
    """What is kept of (after, until]? Answered by `Count`."""

    operation: ClassVar[Operation] = Operation.COUNT
    after: Pointer = 0
    until: Pointer = POINTER_MAX


class Count(Value):
    """What is kept of a stretch. bytes: stored ones of the batches that the records lie in.

    Records that are damaged count, though nobody can read them. first, last: pointers of records, 0 if there
    are none that can be read. gone, newest, end, log: as in `Advance`.
    """

    log: Number
    records: Number
    bytes: Number
    gone: Number
    first: Pointer
    last: Pointer
    newest: Pointer
    end: Number


class Stage(Value):
    """Keep the batch in the payload for a transaction; nobody reads it before that is published.

    part, attempt: whose batch it is. number: the batches of this attempt before it, each of which is there.
    """

    operation: ClassVar[Operation] = Operation.STAGE
    application: str
    version: Version
    part: Annotated[int, Range(0, PART_MAX)]
    attempt: Number
    number: Annotated[int, Range(0, BATCHES_MAX - 1)] = 0


class Staged(Value):
    """What is staged of this attempt, bytes with the batches' headers."""

    batches: Number
    records: Number
    bytes: Number


class PublishStaged(Value):
    """Append the parts that the payload names, one behind the other, all or nothing. Answered by `Published`.

    parts: how many the payload names, see `protocol.transaction`. What else was staged for the transaction
    is removed. newest: nothing is published unless this is the newest version that the application has.
    """

    operation: ClassVar[Operation] = Operation.PUBLISH_STAGED
    application: str
    version: Version
    parts: Annotated[int, Range(0, BATCHES_MAX)]
    newest: Annotated[int, Range(ANY, VERSION_MAX)] = field(default=ANY, metadata=LATER)


class AbortTransaction(Value):
    """Remove what is staged for a transaction; a published one stays. Answered by `TransactionInfo`."""

    operation: ClassVar[Operation] = Operation.ABORT
    application: str
    version: Version


class GetTransaction(Value):
    """How a transaction stands."""

    operation: ClassVar[Operation] = Operation.TRANSACTION
    application: str
    version: Version


class TransactionInfo(Value):
    """A transaction as it stands. state: published, staged (something of it is there), unknown.

    log: id of the topic's log. first, last, count: its records, if it is published. parts, batches, records,
    bytes: what is staged, each attempt counted as a part; in the answer to an abort, what was removed.
    newest_version: the highest that the application has published here, -1 if none is known.
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
