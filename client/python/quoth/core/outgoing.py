"""Batches that are sent to a broker, and the account of those that were not delivered."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from quoth.message import Ack
from quothwire.errors import QuothError
from quothwire.headers import decode_headers
from quothwire.record import RecordBuffer

BATCH_BYTES = 2**20
"""A batch is sent when it holds this much, whatever its number of records."""
OVERHEAD_BYTES = 128
"""Bytes of a batch beside its records: its header, the last offsets, padding."""


@dataclass(frozen=True)
class Failure:
    """A batch that was not delivered.

    outcome: ``refused``, nothing of it was stored; ``unknown``, it may have been stored.
    """

    values: list[bytes]
    keys: list[bytes | None]
    headers: list[Mapping[str, bytes]]
    outcome: Literal["refused", "unknown"]
    error: QuothError


class ProducerError(QuothError):
    """Some batches were not delivered. `failures` holds exactly those, in the order they were sent."""

    def __init__(self, failures: list[Failure]) -> None:
        first = failures[0].error
        records = sum(len(one.values) for one in failures)
        super().__init__(first.code, f"{records} records were not delivered: {first.text}", first.hint)
        self.failures = failures

    def __reduce__(self) -> tuple[Any, ...]:
        return ProducerError, (self.failures,)


@dataclass(eq=False, kw_only=True)
class OutgoingBatch:
    """A batch that is in flight, or soon will be. sequence: its number under the present producer id."""

    began: float = 0.0
    """When its timeout began to run, by the monotonic clock."""
    sequence: int = 0
    payload: bytes = b""
    round: int = 0
    """The round of its newest copy."""
    copies: int = 0
    """How often it was sent."""
    unanswered: int = 0
    """Copies whose outcome is not known, under the present sequence."""
    problem: QuothError | None = None
    """The error that answered its newest copy."""

    def encode(self, producer: int, sequence: int) -> None:
        """Set the sequence and encode the bytes for it; a retry sends the same bytes."""
        self.sequence = sequence
        self.payload = self.encoded(producer, sequence)
        self.unanswered = 0
        self.problem = None

    def encoded(self, _producer: int, _sequence: int) -> bytes:
        """Return the bytes to send."""
        return self.payload

    def failure(self, outcome: Literal["refused", "unknown"], problem: QuothError) -> Failure:
        """Return the account of a batch that was not delivered."""
        return Failure([], [], [], outcome, problem)


@dataclass(eq=False)
class ProducerBatch(OutgoingBatch):
    """A batch of a producer, also while it is filled. number: its place among all of its producer."""

    number: int
    records: RecordBuffer
    futures: list[Future[Ack]] = field(default_factory=list)

    def encoded(self, producer: int, sequence: int) -> bytes:
        """Return the bytes to send."""
        return self.records.encoded(producer, sequence)

    def complete(self, outcome: Ack | Failure) -> None:
        """Complete its futures."""
        for future in self.futures:
            if isinstance(outcome, Ack):
                future.set_result(outcome)
            else:
                future.set_exception(outcome.error)

    def failure(self, outcome: Literal["refused", "unknown"], problem: QuothError) -> Failure:
        """Return the account of a batch that was not delivered, with its records."""
        values, keys, encoded = self.records.contents()
        count = len(values)
        headers: list[Mapping[str, bytes]] = [decode_headers(one) for one in encoded or [b""] * count]
        return Failure(values, keys or [None] * count, headers, outcome, problem)
