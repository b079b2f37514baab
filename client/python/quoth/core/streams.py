"""The calls of a client that begin something, or publish: their arguments, checked, for both clients.

Each returns what a client needs to begin. A client makes a method of it, see `method_of`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from quoth.batch import Batch, StoredBatch
from quoth.columns import columns
from quoth.core.calls import ClientState
from quoth.core.idempotence import Publishing
from quoth.core.options import BUFFER_MAX, as_seconds, deadline_in
from quoth.core.paging import ReadOptions
from quoth.message import OnGap
from quoth.reader import BatchCursor, StoredReader, level_of, reader_from
from quoth.timestamps import Start, Timestamp, cursor, last_before
from quothwire import batch as wire
from quothwire.errors import error
from quothwire.pointer import POINTER_MAX, check_pointer
from quothwire.protocol.messages import Publish
from quothwire.settings import DURABILITIES
from quothwire.topic import check_topic

if TYPE_CHECKING:
    from quoth.core.staging import TransactionName
    from quoth.core.tailing import CursorFile, TailState
    from quoth.cursor import Cursor
    from quoth.merging.multi_reader import MultiReader

BUFFER_BYTES_MAX = 64 * 2**20
"""Bytes in the buffer of a producer: twice what can be in flight."""

# -- writing ------------------------------------------------------------------------------------------------


def publish(
    client: ClientState,
    topic: str,
    value: bytes | Sequence[bytes],
    *,
    key: bytes | Sequence[bytes | None] | None = None,
    headers: Mapping[str, bytes] | Sequence[Mapping[str, bytes]] | None = None,
    durability: Literal["written", "synced"] | None = None,
    timeout: float | None = None,
) -> Publishing:
    """Publish one value, or several as one batch: all of them are stored, in order, or none.

    key, headers: one for all values, or a sequence with one for each. durability: the least level to
    reach before the call returns. A retry after a lost connection never stores anything twice. Raises
    `RequestError`, `NotFound`, `Conflict` or `Unavailable` if nothing was stored, `Disconnected` or
    `BrokerFailure` if that is not known.
    """
    taken = columns(value, key, headers)
    deadline = deadline_in(client.timeout if timeout is None else timeout)
    bytes_max = client._payload_bytes_max
    return Publishing(Publish(durability or ""), topic, taken, bytes_max, deadline, client.url)


class ProducerOptions(NamedTuple):
    """The arguments of `producer`. payload_bytes_max: the largest batch that the broker takes.

    buffer_bytes_max: bytes in the buffer. The record that reaches it is still taken, however large.
    """

    topic: str
    batch: int
    linger: float
    max_buffer: int
    on_full: Literal["block", "raise"]
    durability: Literal["written", "synced"] | None
    timeout: float
    payload_bytes_max: int
    buffer_bytes_max: int = BUFFER_BYTES_MAX
    on_failure: Literal["continue", "stop"] = "continue"


def producer(
    client: ClientState,
    topic: str,
    *,
    batch: int = 1_000,
    linger: float = 0.005,
    max_buffer: int = BUFFER_MAX,
    on_full: Literal["block", "raise"] = "block",
    durability: Literal["written", "synced"] | None = None,
    timeout: float = 120.0,
    on_failure: Literal["continue", "stop"] = "continue",
) -> ProducerOptions:
    """Return a producer, which collects records into batches and keeps several in flight.

    batch: the records of a full batch, which is sent at once. linger: seconds after which a smaller batch
    is sent. max_buffer: the most records that may wait, a full batch at least; 64 MiB of them are a limit,
    too. on_full: `send` waits for room, or raises ``busy``. timeout: seconds after which a batch that is not
    delivered has failed. on_failure: later batches are sent all the same, or nothing is stored behind the
    failed one and `send` raises its error. It has a thread of its own.
    """
    check_topic(topic)
    if not isinstance(batch, int) or not 1 <= batch <= wire.BATCH_RECORDS_MAX:
        raise error("bad_request", f"batch is 1 to {wire.BATCH_RECORDS_MAX} records, not {batch!r}")
    if not isinstance(max_buffer, int):
        raise error("bad_request", f"max_buffer is a number of records, not {max_buffer!r}")
    if on_full not in ("block", "raise"):
        raise error("bad_request", f"on_full is block or raise, not {on_full!r}")
    if durability is not None and durability not in DURABILITIES:
        raise error("bad_request", f"durability is {' or '.join(DURABILITIES)}, not {durability!r}")
    if on_failure not in ("continue", "stop"):
        raise error("bad_request", f"on_failure is continue or stop, not {on_failure!r}")
    linger, timeout = as_seconds(linger, "linger"), as_seconds(timeout)
    room = max(max_buffer, batch)
    return ProducerOptions(
        topic,
        batch,
        linger,
        room,
        on_full,
        durability,
        timeout,
        client._payload_bytes_max,
        on_failure=on_failure,
    )


def transaction(_: ClientState, topic: str, application: str, version: int) -> TransactionName:
    """Return a transaction: batches of many writers, which the topic gets all or none, once.

    application, version: its name. 1 to 200 bytes of UTF-8, beginning with ``~`` if the name is used only
    once; and a number that rises with every transaction of the application on this topic. Sends no
    request.
    """
    from quoth.core.staging import TransactionName

    return TransactionName(topic, application, version).checked()


# -- reading ------------------------------------------------------------------------------------------------


def read(
    _: ClientState,
    topic: str,
    *,
    after: int | None = None,
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    limit: int = 1_000,
    timeout: float | None = None,
    on_gap: OnGap | None = None,
    durability: Literal["written", "synced"] | None = None,
) -> ReadOptions:
    """Read the records that are there now, oldest first, into a sequence that makes messages on access.

    after: a cursor, exclusive. since, until: times; since is included, until is not. By default it reads
    from the oldest record on. limit: the most records. timeout: seconds to wait for the first record.
    A read that begins where another one of this client has ended may return records that were fetched up to
    0.25 s before, and that another client or retention has removed since. durability: ``synced`` for what
    survives a loss of power alone, whatever the topic shows; it ends, or waits, where that ends.
    Raises `RequestError` ``bad_request`` for a limit below 0, and for ``synced`` from a broker that does not
    know it.
    """
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise error("bad_request", f"limit is a number of records from 0 on, not {limit!r:.100}")
    begin = cursor(after, since, 0)
    level, wait = level_of(durability), timeout or 0.0
    is_time, end = since is not None, last_before(until)
    return ReadOptions(check_topic(topic), begin, is_time, end, limit, wait, on_gap, level)


def batches(
    _: ClientState,
    topic: str,
    *,
    after: int | None = None,
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    on_gap: OnGap | None = None,
    durability: Literal["written", "synced"] | None = None,
) -> BatchCursor[Batch]:
    """Iterate over the batches that are there now, oldest first: the fast path for many records.

    Arguments as for `read`; the last batch may reach beyond `until`.
    """
    reader = reader_from(topic, after, since, on_gap, last_before(until))
    reader.durability = level_of(durability)
    return reader


def stored(
    _: ClientState,
    topic: str,
    *,
    after: int = 0,
    until: int | None = None,
    wait: float = 0.0,
    on_gap: OnGap | None = None,
    durability: Literal["written", "synced"] | None = None,
) -> BatchCursor[StoredBatch]:
    """Iterate over the batches above the pointer `after` up to `until`, inclusive, as they are stored.

    The first and the last one may reach beyond that. until: None for what is there now. wait: seconds to
    wait for more; it ends after so many seconds without any. durability: as for `read`.
    """
    end = POINTER_MAX if until is None else check_pointer(until)
    if end < check_pointer(after):
        raise error("bad_request", f"a range that begins after {after} and ends at {end}", "swap the two")
    reader = StoredReader(check_topic(topic), after, on_gap, end)
    reader.wait, reader.durability = as_seconds(wait, "wait"), level_of(durability)
    return reader


# -- following ----------------------------------------------------------------------------------------------


def tail(
    client: ClientState,
    topic: str,
    *,
    after: int | None = None,
    since: Timestamp | None = None,
    cursor: CursorFile | None = None,
    on_gap: OnGap | None = None,
    durability: Literal["written", "synced"] | None = None,
) -> TailState:
    """Iterate over records as they come, for ever: from now on, or behind a cursor, or since a time.

    Waits for records, for a topic that does not exist yet, and for a broker that is not there, even in
    the beginning. Ends with `NotFound` when the topic is deleted.

    cursor: a `Cursor`, or the path of its file, that says where to begin, as for `tail_many`. A record is
    done when the next one is requested: then the cursor moves behind it. It is saved several times a
    second, and a file is closed with the iterator. durability: as for `read`; with ``synced`` each record
    comes once it is synced, and "now" is the end of what was synced.

    In an event loop it begins at about now, or exactly when `await client.tail(...)` returns it, and each
    save blocks the loop until the disk has written it.
    """
    from quoth.core.tailing import TailState

    level = level_of(durability)
    return TailState(topic, after, since, cursor, on_gap, client._timing, level)


def read_many(
    client: ClientState,
    topics: str | Iterable[str],
    *,
    after: Start | None = None,
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    cursor: Cursor | None = None,
    ordered: bool = False,
    on_gap: OnGap | None = None,
) -> MultiReader:
    """Read the records of several topics that are there now: names, and patterns such as ``orders.*``.

    Arguments as for `read` and `tail_many`. Raises `NotFound` for a name that no topic has.
    """
    from quoth.merging.multi_reader import MultiReader, ReadPlan

    plan = ReadPlan.of(after, since, cursor, ordered=ordered, follow=False, until=until)
    return MultiReader(topics, plan, on_gap, client.timeout, client._timing)


def tail_many(
    client: ClientState,
    topics: str | Iterable[str],
    *,
    after: Start | None = None,
    since: Timestamp | None = None,
    cursor: Cursor | None = None,
    ordered: bool = False,
    on_gap: OnGap | None = None,
) -> MultiReader:
    """Follow several topics for ever, also new ones that match a pattern.

    cursor: says where to begin, whatever `after` and `since` say; a topic that it does not know is read
    from its beginning. A new cursor begins where `after` and `since` say. after: a cursor, or one for
    each topic; a topic that is not named is read from its beginning. ordered: in the order of time, each
    record as soon as no older one can come, see `Reading`.

    In an event loop it begins at about now, with patterns when it is first awaited; exactly when `await
    client.tail_many(...)` returns it, or `async with` enters it. The `save` of a cursor blocks the loop until
    the disk has written it; `await asyncio.to_thread(cursor.save)` does not.
    """
    from quoth.merging.multi_reader import MultiReader, ReadPlan

    plan = ReadPlan.of(after, since, cursor, ordered=ordered, follow=True)
    return MultiReader(topics, plan, on_gap, client.timeout, client._timing)
