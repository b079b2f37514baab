"""Transactions for an event loop: see `quoth.transaction`."""

from __future__ import annotations

from typing import Self, TypeVar

from quoth import transaction as calls
from quoth.aio.requests import LoopMultiplexer
from quoth.core.calls import coroutine_of, method_of
from quoth.core.request_state import ClientCall
from quoth.core.staging import PartStaging
from quoth.transaction import TURN_S, PartCall, PartWork, TransactionWork

T = TypeVar("T")


class Transaction(TransactionWork):
    """A transaction on a topic, made by `Client.transaction`: see `quoth.Transaction`."""

    async def _run(self, call: ClientCall[T]) -> T:
        result: T = await self._client._run(call)
        return result

    def _writer(self, staging: PartStaging) -> PartWriter:
        return PartWriter(self._client._requests(), staging)

    part = method_of(calls.part, _writer, "PartWriter")
    publish = coroutine_of(calls.publish, _run)
    abort = coroutine_of(calls.abort, _run)
    status = coroutine_of(calls.status, _run)


class PartWriter(PartWork[LoopMultiplexer]):
    """One attempt to write a part, made by `Transaction.part`: see `quoth.PartWriter`.

    One task at a time may wait for it. Cancelling a call ends the attempt.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def _drive(self, call: PartCall[T]) -> T:
        with self._ends_on_error():
            try:
                next(call)
                while True:
                    call.send(await self._requests.hear(TURN_S))
            except StopIteration as end:
                result: T = end.value
                return result
        raise AssertionError("an error is raised again")

    write = coroutine_of(calls.write, _drive)
    append = coroutine_of(calls.append, _drive)
    finish = coroutine_of(calls.finish, _drive)
