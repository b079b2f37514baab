"""Transactions: many batches, written by many, that a topic gets all or none, once.

    writers, anywhere                     whoever ends it
    part(0): write, finish  --> StagedPart --+
    part(1): write, finish  --> StagedPart --+--> publish: one stretch of pointers
    part(1) of another try  --> StagedPart       (this one is left out and goes)

A transaction is a name and nothing more: whoever has its topic, application and version may write a part,
publish, abort and ask how it stands, with a client of his own in a process of his own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from quoth.columns import columns
from quoth.connection.request_mux import RequestMultiplexer
from quoth.core import calls
from quoth.core.deadline import as_seconds, deadline_in
from quoth.core.request_state import RETRIED, ClientCall, RequestState
from quoth.core.staging import PartStaging, TransactionName
from quoth.message import Ack
from quothwire.closing import Closeable
from quothwire.columns import Column
from quothwire.errors import QuothError, error
from quothwire.protocol.messages import (
    AbortTransaction,
    GetTransaction,
    Published,
    PublishStaged,
    TransactionInfo,
)
from quothwire.protocol.transaction import ANY, StagedPart, encode_parts

if TYPE_CHECKING:
    from quoth.client import Client

PART_TIMEOUT_S = 120.0
PUBLISH_TIMEOUT_S = 600.0
"""16 GiB that nobody has synced yet take a slow disk three minutes."""
PUBLISH_ABSENCE_S = 60.0
"""For so long a broker may not be there at all meanwhile, or for the client's timeout if that is longer."""
PUBLISH_WAIT_S = 20.0
"""A broker that publishes gigabytes is asked again no sooner, unless its connection was lost."""
TURN_S = 1.0
"""How long nothing is heard before it is looked whether there is something to ask."""


class Named:
    """What a transaction is, whichever client it is of: a name, and no state of its own."""

    def __init__(self, name: TransactionName) -> None:
        self.topic, self.application, self.version = name.topic, name.application, name.version
        self._name = name

    def __repr__(self) -> str:
        return f"Transaction({self._name})"


class Transaction(Named):
    """A transaction on a topic, made by `Client.transaction`. Any thread may call it."""

    def __init__(self, client: Client, name: TransactionName) -> None:
        super().__init__(name)
        self._client = client

    def part(self, number: int, *, timeout: float = PART_TIMEOUT_S) -> PartWriter:
        """Begin another attempt at a part, numbered from 0 to 999,999, over a connection of its own.

        Attempts do not disturb each other: whoever publishes says which one counts. timeout: seconds that
        each batch may take to be staged.
        """
        client = self._client
        staging = PartStaging(self._name, number, client._payload_bytes_max, timeout)
        return PartWriter(RequestMultiplexer(client._pool.context, client.url), staging)

    def publish(
        self,
        parts: Iterable[StagedPart],
        *,
        newest: int | None = None,
        timeout: float = PUBLISH_TIMEOUT_S,
    ) -> Ack:
        """Publish some parts, one behind the other in the order given: all of them, or nothing.

        To publish again is safe and answers the same pointers, `duplicate`, whatever parts are given then; no
        answer within a while is asked for again. Parts without records are left out; without any others
        nothing is stored or remembered, and the count is 0. newest: only if this is the newest version that
        the application has published here, -1 for none: so of several who go on from the same one, one does.
        timeout: seconds that the broker may take; if none is there a minute or two are enough, or the
        client's timeout if that is longer.

        Raises `Conflict` ``not_staged`` with what is missing, or ``newest_differs``; `Disconnected` or
        `BrokerFailure` if the outcome is not known: publish again, or ask `status`.
        """
        return self._client._run(publish(self._name, parts, newest, timeout, self._client.timeout))

    def abort(self) -> TransactionInfo:
        """Remove what is staged; tells how much that was, and whether it is published, which it remains."""
        return self._client._run(inform(AbortTransaction, self._name, self._client.timeout))

    def status(self) -> TransactionInfo:
        """How it stands: published, staged or unknown."""
        return self._client._run(inform(GetTransaction, self._name, self._client.timeout))


class PartWriter(Closeable):
    """One attempt at a part, made by `Transaction.part`: write, then finish. Belongs to one thread at a time.

    Batches of a MiB are sent while the next ones are gathered, up to 8 of them or 16 MiB on their way. They
    survive lost connections and a broker that is started anew. The first error ends the attempt; the part has
    to be written again from its first record, as another one.
    """

    def __init__(self, questions: RequestMultiplexer, staging: PartStaging) -> None:
        self._questions = questions
        self._staging = staging

    def write(
        self,
        value: bytes | Sequence[bytes],
        *,
        key: bytes | Sequence[bytes | None] | None = None,
        headers: Mapping[str, bytes] | Sequence[Mapping[str, bytes]] | None = None,
    ) -> None:
        """Append one record, or several: the arguments are those of `Client.publish`.

        Waits while as much is on its way as may be. Raises `RequestError` if nothing of it was taken, else
        what ends the attempt.
        """
        self._staging.check()
        taken = columns(value, key, headers)
        sizes = self._staging.sizes_of(taken)
        for _ in self._staging.put(taken, sizes):
            self._until(lambda: self._staging.has_room)

    def append(self, values: Column, keys: Column | None = None, headers: Column | None = None) -> None:
        """Append one batch whose columns lie in Arrow's layout already, at most 16 MiB and 100,000 records.

        headers: encoded, see `quothwire.columns.encode_columns`. Otherwise like `write`.
        """
        self._staging.check()
        self._staging.put_columns(values, keys, headers)
        self._until(lambda: self._staging.has_room)

    def finish(self) -> StagedPart:
        """Return when everything is staged, with what has to be published."""
        self._staging.check()
        self._staging.seal()
        self._until(lambda: self._staging.is_settled)
        self.close()
        return self._staging.end()

    def close(self) -> None:
        """Close the connection. What is not finished by now is never published."""
        self._staging.fail(error("closed", "the writer was closed"))
        self._questions.close()

    def _until(self, enough: Callable[[], bool]) -> None:
        """Let everything leave that is ready, and wait until it is enough."""
        questions, staging = self._questions, self._staging
        try:
            while True:
                for exchange in staging.leaving():
                    questions.ask(exchange)
                if enough():
                    return
                for exchange, answer in questions.hear(TURN_S):
                    staging.take(exchange, answer)
        except QuothError as problem:
            questions.close()
            raise staging.fail(problem) from None
        except BaseException:
            self.close()
            raise


def publish(
    name: TransactionName, parts: Iterable[StagedPart], newest: int | None, timeout: float, absence: float
) -> ClientCall[Ack]:
    """See `Transaction.publish`."""
    given = list(parts)
    for part in given:
        if not isinstance(part, StagedPart):
            text = f"{part!r:.100} is no StagedPart"
            raise error("bad_request", text, "`PartWriter.finish` returns one")
    filled = [part for part in given if part.batches]
    exchange = RequestState(
        PublishStaged(name.application, name.version, len(filled), ANY if newest is None else newest),
        name.topic,
        encode_parts(filled),
        deadline=deadline_in(timeout),
        wait=PUBLISH_WAIT_S,
        absence=max(as_seconds(absence), PUBLISH_ABSENCE_S),
        retried=RETRIED | {"disk_low"},
    )
    reply = (yield exchange).reply
    assert isinstance(reply, Published)
    return Ack(reply.first, reply.last, reply.count, reply.durability, reply.duplicate)


def inform(
    kind: type[AbortTransaction | GetTransaction], name: TransactionName, timeout: float
) -> ClientCall[TransactionInfo]:
    """See `Transaction.abort` and `Transaction.status`."""
    request = kind(name.application, name.version)
    return calls.ask(TransactionInfo, request, name.topic, timeout=timeout)
