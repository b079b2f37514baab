"""Transactions for an event loop: see `quoth.transaction`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self, TypeVar

from quoth.aio.requests import LoopMultiplexer
from quoth.core.request_state import ClientCall
from quoth.core.staging import PartStaging, TransactionName
from quoth.message import Ack
from quoth.transaction import (
    PART_TIMEOUT_S,
    PUBLISH_TIMEOUT_S,
    TURN_S,
    HasTiming,
    PartWork,
    TransactionCalls,
    Waits,
)
from quothwire.columns import Column
from quothwire.protocol.messages import AbortTransaction, GetTransaction, TransactionInfo
from quothwire.protocol.transaction import StagedPart

T = TypeVar("T")


class _Client(HasTiming, Protocol):
    """The part of a client that a transaction needs."""

    _payload_bytes_max: int

    async def _run(self, call: ClientCall[T]) -> T: ...
    def _requests(self) -> LoopMultiplexer: ...


class Transaction(TransactionCalls):
    """A transaction on a topic, made by `Client.transaction`: see `quoth.Transaction`."""

    def __init__(self, client: _Client, name: TransactionName) -> None:
        super().__init__(name, client)
        self._client = client

    def part(self, number: int, *, timeout: float = PART_TIMEOUT_S) -> PartWriter:
        """Begin another attempt to write a part: see `quoth.Transaction.part`."""
        requests = self._client._requests()
        return PartWriter(requests, PartStaging(self._name, number, self._client._payload_bytes_max, timeout))

    async def publish(
        self,
        parts: Iterable[StagedPart],
        *,
        newest: int | None = None,
        timeout: float = PUBLISH_TIMEOUT_S,
    ) -> Ack:
        """Publish some parts, all of them or nothing: see `quoth.Transaction.publish`.

        The outcome of a cancelled call is not known: publish again, or ask for the `status`.
        """
        return await self._client._run(self._publish(parts, newest, timeout))

    async def abort(self) -> TransactionInfo:
        """Remove the staged parts: see `quoth.Transaction.abort`."""
        return await self._client._run(self._inform(AbortTransaction))

    async def status(self) -> TransactionInfo:
        """Return the state: published, staged or unknown."""
        return await self._client._run(self._inform(GetTransaction))


class PartWriter(PartWork[LoopMultiplexer]):
    """One attempt to write a part, made by `Transaction.part`: see `quoth.PartWriter`.

    One task at a time may wait for it. Cancelling a call ends the attempt.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def write(
        self,
        value: bytes | Sequence[bytes],
        *,
        key: bytes | Sequence[bytes | None] | None = None,
        headers: Mapping[str, bytes] | Sequence[Mapping[str, bytes]] | None = None,
    ) -> None:
        """Append one record, or several: see `quoth.PartWriter.write`."""
        await self._drive(self._write(value, key, headers))

    async def append(self, values: Column, keys: Column | None = None, headers: Column | None = None) -> None:
        """Append one batch whose columns have Arrow's layout: see `quoth.PartWriter.append`."""
        await self._drive(self._append(values, keys, headers))

    async def finish(self) -> StagedPart:
        """Wait until everything is staged, and return the part, to be published."""
        await self._drive(self._finish())
        self.close()
        return self._staging.end()

    def close(self) -> None:
        """Send nothing more. A part that is not finished by now is never published."""
        self._fail_closed()

    async def _drive(self, waits: Waits) -> None:
        with self._ends_on_error(), suppress(StopIteration):
            waits.send(None)  # type: ignore[arg-type]  # the start of a generator
            while True:
                waits.send(await self._requests.hear(TURN_S))
