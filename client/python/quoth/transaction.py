"""Transactions: many batches, written by many tasks, that a topic gets all or none, once.

    any process                           the process that ends it
    part(0): write, finish  --> StagedPart --+
    part(1): write, finish  --> StagedPart --+--> publish: one range of pointers
    part(1), second attempt --> StagedPart       (not named by the publish: removed)

A transaction is a name and nothing more: any client in any process that knows its topic, application and
version may write a part, publish, abort and ask for its status.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, TypeAlias, TypeVar

from quoth.columns import RecordColumns, columns
from quoth.connection.channel import Channel
from quoth.core.calls import ClientState, ask, method_of
from quoth.core.options import as_seconds, deadline_in
from quoth.core.request_state import RETRIED, ClientCall, Requests, RequestState
from quoth.core.staging import PartStaging, TransactionName
from quoth.message import Ack
from quothwire.closing import Closeable
from quothwire.columns import Column
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import (
    AbortTransaction,
    GetTransaction,
    Published,
    PublishStaged,
    TransactionInfo,
)
from quothwire.protocol.transaction import ANY, StagedPart, encode_parts

PART_TIMEOUT_S = 120.0
PUBLISH_TIMEOUT_S = 600.0
"""16 GiB that are not synced yet take a slow disk three minutes."""
TURN_S = 1.0
"""The longest wait for answers before it is checked again what can be sent."""

T = TypeVar("T")
R = TypeVar("R", bound=Requests)

# -- the calls of both clients ------------------------------------------------------------------------------


class TransactionWork:
    """The name of a transaction, and the client that executes its calls."""

    def __init__(self, client: ClientState, name: TransactionName) -> None:
        self.topic, self.application, self.version = name.topic, name.application, name.version
        self._name = name
        self._client = client

    def __repr__(self) -> str:
        return f"Transaction({self._name})"


def part(transaction: TransactionWork, number: int, *, timeout: float = PART_TIMEOUT_S) -> PartStaging:
    """Begin another attempt to write a part, numbered from 0 to 999,999, over a connection of its own.

    Attempts do not disturb each other: the publish names the ones that count. timeout: seconds that each
    batch may take to be staged.
    """
    return PartStaging(transaction._name, number, transaction._client._payload_bytes_max, timeout)


def publish(
    transaction: TransactionWork,
    parts: Iterable[StagedPart],
    *,
    newest: int | None = None,
    timeout: float = PUBLISH_TIMEOUT_S,
) -> ClientCall[Ack]:
    """Publish some parts, one behind the other in the given order: all of them, or nothing.

    Publishing again is safe: it returns the same pointers as a `duplicate`, whatever parts are named then.
    Parts without records are left out; without any others nothing is stored or remembered, and the count is
    0. newest: publish only if this is the newest version that the application has published here, -1 for
    none: so of several processes that continue from the same version, one succeeds. timeout: seconds that the
    broker may take; if no broker is there, it ends after a minute or two, or after the client's timeout if
    that is longer.

    Raises `Conflict` ``not_staged`` with what is missing, or ``newest_differs``; `Disconnected` or
    `BrokerFailure` if the outcome is not known, nor is it after a cancelled call: publish again, or ask for
    the `status`.
    """
    given = list(parts)
    for one in given:
        if not isinstance(one, StagedPart):
            text = f"{one!r:.100} is no StagedPart"
            raise error("bad_request", text, "`PartWriter.finish` returns one")
    filled = [one for one in given if one.batches]
    client = transaction._client
    request = RequestState(
        PublishStaged(
            transaction.application, transaction.version, len(filled), ANY if newest is None else newest
        ),
        transaction.topic,
        encode_parts(filled),
        deadline=deadline_in(timeout),
        wait=client._timing.publish_wait,
        absence=max(as_seconds(client.timeout), client._timing.publish_absence),
        retried=RETRIED | {"disk_low"},
    )
    reply = (yield request).reply
    assert isinstance(reply, Published)
    return Ack.of(reply)


def abort(transaction: TransactionWork) -> ClientCall[TransactionInfo]:
    """Remove the staged parts; returns their size and the state. A published transaction stays."""
    return _inform(transaction, AbortTransaction)


def status(transaction: TransactionWork) -> ClientCall[TransactionInfo]:
    """Return the state: published, staged or unknown."""
    return _inform(transaction, GetTransaction)


def _inform(
    transaction: TransactionWork, kind: type[AbortTransaction | GetTransaction]
) -> ClientCall[TransactionInfo]:
    request = kind(transaction.application, transaction.version)
    return ask(TransactionInfo, request, transaction.topic, timeout=transaction._client.timeout)


PartCall: TypeAlias = Generator[None, list[tuple[RequestState, Answer]], T]
"""Work on a part that yields whenever it has to wait for answers, which are sent in."""


class PartWork(Generic[R]):
    """The attempt of a part writer, shared by both clients.

    Wrong arguments raise before anything is taken; then the part can go on.
    """

    def __init__(self, requests: R, staging: PartStaging) -> None:
        self._requests = requests
        self._staging = staging

    def close(self) -> None:
        """Send nothing more. A part that is not finished by now is never published."""
        self._staging.fail(error("closed", "the writer was closed"))
        self._requests.close()

    def _put(self, taken: RecordColumns, sizes: list[int]) -> PartCall[None]:
        for _ in self._staging.put(taken, sizes):
            yield from self._until(lambda: self._staging.has_room)

    def _until(self, enough: Callable[[], bool]) -> PartCall[None]:
        """Send everything that is ready, and wait for answers until it is enough."""
        while True:
            for request in self._staging.leaving():
                self._requests.ask(request)
            if enough():
                return
            for request, answer in (yield):
                self._staging.take(request, answer)

    @contextmanager
    def _ends_on_error(self) -> Iterator[None]:
        """End the attempt if the block fails, with an error that names the part."""
        try:
            yield
        except QuothError as problem:
            self._requests.close()
            raise self._staging.fail(problem) from None
        except BaseException:
            self.close()
            raise


def write(
    work: PartWork[R],
    value: bytes | Sequence[bytes],
    *,
    key: bytes | Sequence[bytes | None] | None = None,
    headers: Mapping[str, bytes] | Sequence[Mapping[str, bytes]] | None = None,
) -> PartCall[None]:
    """Append one record, or several: the arguments are those of `Client.publish`.

    Waits while the limits of batches in flight are reached. Raises `RequestError` if nothing of it was taken,
    else the error that ends the attempt.
    """
    work._staging.check()
    taken = columns(value, key, headers)
    return work._put(taken, work._staging.sizes_of(taken))


def append(
    work: PartWork[R], values: Column, keys: Column | None = None, headers: Column | None = None
) -> PartCall[None]:
    """Append one batch whose columns have Arrow's layout, at most 16 MiB and 100,000 records.

    headers: encoded, see `quothwire.columns.encode_columns`. Otherwise as `write`.
    """
    work._staging.check()
    work._staging.put_columns(values, keys, headers)
    return work._until(lambda: work._staging.has_room)


def finish(work: PartWork[R]) -> PartCall[StagedPart]:
    """Wait until everything is staged, and return the part, to be published."""
    work._staging.check()
    work._staging.seal()
    yield from work._until(lambda: work._staging.is_settled)
    work._requests.close()
    return work._staging.end()


# -- the blocking client ------------------------------------------------------------------------------------


class Transaction(TransactionWork):
    """A transaction on a topic, made by `Client.transaction`. Any thread may call it."""

    def _run(self, call: ClientCall[T]) -> T:
        result: T = self._client._run(call)
        return result

    def _writer(self, staging: PartStaging) -> PartWriter:
        return PartWriter(self._client._requests(), staging)

    part = method_of(part, _writer, "PartWriter")
    publish = method_of(publish, _run)
    abort = method_of(abort, _run)
    status = method_of(status, _run)


class PartWriter(PartWork[Channel], Closeable):
    """One attempt to write a part, made by `Transaction.part`: write, then finish. Belongs to one thread.

    Batches of a MiB are sent while the next ones are filled, with up to 8 of them or 16 MiB in flight. They
    survive lost connections and a restart of the broker. The first error ends the attempt; then the part has
    to be written again from its first record, by another attempt.
    """

    def _drive(self, call: PartCall[T]) -> T:
        with self._ends_on_error():
            try:
                next(call)
                while True:
                    call.send(self._requests.hear(TURN_S))
            except StopIteration as end:
                result: T = end.value
                return result
        raise AssertionError("an error is raised again")

    write = method_of(write, _drive)
    append = method_of(append, _drive)
    finish = method_of(finish, _drive)
