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
from contextlib import contextmanager, suppress
from typing import Generic, Protocol, TypeAlias, TypeVar

from quoth.columns import RecordColumns, columns
from quoth.connection.channel import Channel
from quoth.core import calls
from quoth.core.options import Timing, as_seconds, deadline_in
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


class HasTiming(Protocol):
    """A client: its timeout and its pauses."""

    timeout: float
    _timing: Timing


class TransactionCalls:
    """The name of a transaction, and its calls, which each client executes in its own way."""

    def __init__(self, name: TransactionName, timeouts: HasTiming) -> None:
        self.topic, self.application, self.version = name.topic, name.application, name.version
        self._name = name
        self._timeouts = timeouts

    def __repr__(self) -> str:
        return f"Transaction({self._name})"

    def _publish(self, parts: Iterable[StagedPart], newest: int | None, timeout: float) -> ClientCall[Ack]:
        given = list(parts)
        for part in given:
            if not isinstance(part, StagedPart):
                text = f"{part!r:.100} is no StagedPart"
                raise error("bad_request", text, "`PartWriter.finish` returns one")
        filled = [part for part in given if part.batches]
        request = RequestState(
            PublishStaged(self.application, self.version, len(filled), ANY if newest is None else newest),
            self.topic,
            encode_parts(filled),
            deadline=deadline_in(timeout),
            wait=self._timeouts._timing.publish_wait,
            absence=max(as_seconds(self._timeouts.timeout), self._timeouts._timing.publish_absence),
            retried=RETRIED | {"disk_low"},
        )
        reply = (yield request).reply
        assert isinstance(reply, Published)
        return Ack.of(reply)

    def _inform(self, kind: type[AbortTransaction | GetTransaction]) -> ClientCall[TransactionInfo]:
        request = kind(self.application, self.version)
        return calls.ask(TransactionInfo, request, self.topic, timeout=self._timeouts.timeout)


class _Client(HasTiming, Protocol):
    """The part of a client that a transaction needs."""

    _payload_bytes_max: int

    def _run(self, call: ClientCall[T]) -> T: ...
    def _requests(self) -> Channel: ...


class Transaction(TransactionCalls):
    """A transaction on a topic, made by `Client.transaction`. Any thread may call it."""

    def __init__(self, client: _Client, name: TransactionName) -> None:
        super().__init__(name, client)
        self._client = client

    def part(self, number: int, *, timeout: float = PART_TIMEOUT_S) -> PartWriter:
        """Begin another attempt to write a part, numbered from 0 to 999,999, over a connection of its own.

        Attempts do not disturb each other: the publish names the ones that count. timeout: seconds that each
        batch may take to be staged.
        """
        staging = PartStaging(self._name, number, self._client._payload_bytes_max, timeout)
        return PartWriter(self._client._requests(), staging)

    def publish(
        self,
        parts: Iterable[StagedPart],
        *,
        newest: int | None = None,
        timeout: float = PUBLISH_TIMEOUT_S,
    ) -> Ack:
        """Publish some parts, one behind the other in the given order: all of them, or nothing.

        Publishing again is safe: it returns the same pointers as a `duplicate`, whatever parts are named
        then. Parts without records are left out; without any others nothing is stored or remembered, and the
        count is 0. newest: publish only if this is the newest version that the application has published
        here, -1 for none: so of several processes that continue from the same version, one succeeds. timeout:
        seconds that the broker may take; if no broker is there, it ends after a minute or two, or after the
        client's timeout if that is longer.

        Raises `Conflict` ``not_staged`` with what is missing, or ``newest_differs``; `Disconnected` or
        `BrokerFailure` if the outcome is not known: publish again, or ask for the `status`.
        """
        return self._client._run(self._publish(parts, newest, timeout))

    def abort(self) -> TransactionInfo:
        """Remove the staged parts; returns their size and the state. A published transaction stays."""
        return self._client._run(self._inform(AbortTransaction))

    def status(self) -> TransactionInfo:
        """Return the state: published, staged or unknown."""
        return self._client._run(self._inform(GetTransaction))


Waits: TypeAlias = Generator[None, list[tuple[RequestState, Answer]], None]
"""Work on a part that yields whenever it has to wait for answers, which are sent in."""


R = TypeVar("R", bound=Requests)


class PartWork(Generic[R]):
    """The work of a part writer up to each wait, shared by both clients.

    Wrong arguments raise before anything is taken; then the part can go on.
    """

    def __init__(self, requests: R, staging: PartStaging) -> None:
        self._requests = requests
        self._staging = staging

    def _write(
        self,
        value: bytes | Sequence[bytes],
        key: bytes | Sequence[bytes | None] | None,
        headers: Mapping[str, bytes] | Sequence[Mapping[str, bytes]] | None,
    ) -> Waits:
        self._staging.check()
        taken = columns(value, key, headers)
        return self._put(taken, self._staging.sizes_of(taken))

    def _put(self, taken: RecordColumns, sizes: list[int]) -> Waits:
        for _ in self._staging.put(taken, sizes):
            yield from self._until(lambda: self._staging.has_room)

    def _append(self, values: Column, keys: Column | None, headers: Column | None) -> Waits:
        self._staging.check()
        self._staging.put_columns(values, keys, headers)
        return self._until(lambda: self._staging.has_room)

    def _finish(self) -> Waits:
        self._staging.check()
        self._staging.seal()
        return self._until(lambda: self._staging.is_settled)

    def _until(self, enough: Callable[[], bool]) -> Waits:
        """Send everything that is ready, and wait for answers until it is enough."""
        while True:
            for request in self._staging.leaving():
                self._requests.ask(request)
            if enough():
                return
            for request, answer in (yield):
                self._staging.take(request, answer)

    def _fail_closed(self) -> None:
        """Let the attempt fail because the writer is closed. Does nothing if it has ended."""
        self._staging.fail(error("closed", "the writer was closed"))
        self._requests.close()

    @contextmanager
    def _ends_on_error(self) -> Iterator[None]:
        """End the attempt if the block fails, with an error that names the part."""
        try:
            yield
        except QuothError as problem:
            self._requests.close()
            raise self._staging.fail(problem) from None
        except BaseException:
            self._fail_closed()
            raise


class PartWriter(PartWork[Channel], Closeable):
    """One attempt to write a part, made by `Transaction.part`: write, then finish. Belongs to one thread.

    Batches of a MiB are sent while the next ones are filled, with up to 8 of them or 16 MiB in flight. They
    survive lost connections and a restart of the broker. The first error ends the attempt; then the part has
    to be written again from its first record, by another attempt.
    """

    def write(
        self,
        value: bytes | Sequence[bytes],
        *,
        key: bytes | Sequence[bytes | None] | None = None,
        headers: Mapping[str, bytes] | Sequence[Mapping[str, bytes]] | None = None,
    ) -> None:
        """Append one record, or several: the arguments are those of `Client.publish`.

        Waits while the limits of batches in flight are reached. Raises `RequestError` if nothing of it was
        taken, else the error that ends the attempt.
        """
        self._drive(self._write(value, key, headers))

    def append(self, values: Column, keys: Column | None = None, headers: Column | None = None) -> None:
        """Append one batch whose columns have Arrow's layout, at most 16 MiB and 100,000 records.

        headers: encoded, see `quothwire.columns.encode_columns`. Otherwise as `write`.
        """
        self._drive(self._append(values, keys, headers))

    def finish(self) -> StagedPart:
        """Wait until everything is staged, and return the part, to be published."""
        self._drive(self._finish())
        self.close()
        return self._staging.end()

    def close(self) -> None:
        """Close the connection. A part that is not finished by now is never published."""
        self._fail_closed()

    def _drive(self, waits: Waits) -> None:
        with self._ends_on_error(), suppress(StopIteration):
            waits.send(None)  # type: ignore[arg-type]  # the start of a generator
            while True:
                waits.send(self._requests.hear(TURN_S))
