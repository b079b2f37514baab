"""A batch on its way out of a producer, and what is told of one that did not arrive."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from quoth.message import Ack
from quothwire import batch as wire
from quothwire.errors import QuothError

RECORD_BYTES = 13
"""What a record takes in a batch beside its bytes: three offsets, and a bit rounded up."""


def record_bytes(value: bytes, key: bytes | None, headers: bytes) -> int:
    """What a record takes in a batch."""
    return RECORD_BYTES + len(value) + len(key or b"") + len(headers)


@dataclass(frozen=True)
class Failure:
    """A batch that was not delivered.

    outcome: ``refused``, it is certain that nothing of it was stored; ``unknown``, it may have been.
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


@dataclass(eq=False)
class Outgoing:
    """A batch while it is filled, waits and is on its way. number: which one of its producer it is."""

    number: int
    values: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    headers: list[bytes] = field(default_factory=list)
    size: int = 0
    futures: list[Future[Ack]] = field(default_factory=list)
    began: float = 0.0

    sequence: int = 0
    payload: bytes = b""
    round: int = 0
    """Of its newest copy."""
    unanswered: int = 0
    """Copies that nothing was heard of, under the present sequence."""
    refusal: QuothError | None = None
    """What became of its newest copy."""

    def add(self, value: bytes, key: bytes | None, headers: bytes, size: int) -> None:
        """Put a record in. size: its bytes in the batch, from `record_bytes`."""
        self.values.append(value)
        self.keys.append(key)
        self.headers.append(headers)
        self.size += size

    def encode(self, producer: int, sequence: int) -> None:
        """Make the bytes to send; a retry sends the same ones."""
        self.sequence = sequence
        self.payload = wire.encode(
            self.values,
            self.keys if any(key is not None for key in self.keys) else None,
            self.headers if any(self.headers) else None,
            producer=producer,
            sequence=sequence,
        )
        self.unanswered = 0
        self.refusal = None

    def tell(self, outcome: Ack | Failure) -> None:
        """Let those know who hold its futures."""
        for future in self.futures:
            if isinstance(outcome, Ack):
                future.set_result(outcome)
            else:
                future.set_exception(outcome.error)

    def failure(self, outcome: Literal["refused", "unknown"], problem: QuothError) -> Failure:
        """What is told of it when it failed."""
        headers: list[Mapping[str, bytes]] = [wire.decode_headers(one) for one in self.headers]
        return Failure(self.values, self.keys, headers, outcome, problem)
