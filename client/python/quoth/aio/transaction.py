"""Transactions for an event loop: see `quoth.transaction`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from quoth.aio.request_mux import LoopMultiplexer
from quoth.columns import columns
from quoth.core.staging import PartStaging, TransactionName
from quoth.message import Ack
from quoth.transaction import PART_TIMEOUT_S, PUBLISH_TIMEOUT_S, TURN_S, Named, inform, publish
from quothwire.columns import Column
from quothwire.errors import QuothError, error
from quothwire.protocol.messages import AbortTransaction, GetTransaction, TransactionInfo
from quothwire.protocol.transaction import StagedPart

if TYPE_CHECKING:
    from quoth.aio.client import Client


class Transaction(Named):
    """A transaction on a topic, made by `Client.transaction`: see `quoth.Transaction`."""

    def __init__(self, client: Client, name: TransactionName) -> None:
        super().__init__(name)
        self._client = client

    def part(self, number: int, *, timeout: float = PART_TIMEOUT_S) -> PartWriter:
        """Begin another attempt at a part: see `quoth.Transaction.part`."""
        client = self._client
        client._courier.check()
        staging = PartStaging(self._name, number, client._payload_bytes_max, timeout)
        return PartWriter(LoopMultiplexer(client._courier), staging)

    async def publish(
        self,
        parts: Iterable[StagedPart],
        *,
        newest: int | None = None,
        timeout: float = PUBLISH_TIMEOUT_S,
    ) -> Ack:
        """Publish some parts, all of them or nothing: see `quoth.Transaction.publish`.

        One that is cancelled may be published or not: publish again, or ask `status`.
        """
        return await self._client._run(publish(self._name, parts, newest, timeout, self._client.timeout))

    async def abort(self) -> TransactionInfo:
        """Remove what is staged; tells how much that was, and whether it is published, which it remains."""
        return await self._client._run(inform(AbortTransaction, self._name, self._client.timeout))

    async def status(self) -> TransactionInfo:
        """How it stands: published, staged or unknown."""
        return await self._client._run(inform(GetTransaction, self._name, self._client.timeout))


class PartWriter:
    """One attempt at a part, made by `Transaction.part`: see `quoth.PartWriter`.

    One task at a time waits for it. A call that is cancelled ends the attempt.
    """

    def __init__(self, questions: LoopMultiplexer, staging: PartStaging) -> None:
        self._questions = questions
        self._staging = staging

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
        self._staging.check()
        taken = columns(value, key, headers)
        sizes = self._staging.sizes_of(taken)
        for _ in self._staging.put(taken, sizes):
            await self._until(lambda: self._staging.has_room)

    async def append(self, values: Column, keys: Column | None = None, headers: Column | None = None) -> None:
        """Append one batch whose columns lie in Arrow's layout already: see `quoth.PartWriter.append`."""
        self._staging.check()
        self._staging.put_columns(values, keys, headers)
        await self._until(lambda: self._staging.has_room)

    async def finish(self) -> StagedPart:
        """Return when everything is staged, with what has to be published."""
        self._staging.check()
        self._staging.seal()
        await self._until(lambda: self._staging.is_settled)
        self.close()
        return self._staging.end()

    def close(self) -> None:
        """Ask nothing more. What is not finished by now is never published."""
        self._staging.fail(error("closed", "the writer was closed"))
        self._questions.drop()

    async def _until(self, enough: Callable[[], bool]) -> None:
        """Let everything leave that is ready, and wait until it is enough."""
        questions, staging = self._questions, self._staging
        try:
            while True:
                for exchange in staging.leaving():
                    questions.ask(exchange)
                if enough():
                    return
                for exchange, answer in await questions.hear(TURN_S):
                    staging.take(exchange, answer)
        except QuothError as problem:
            questions.drop()
            raise staging.fail(problem) from None
        except BaseException:
            self.close()
            raise
