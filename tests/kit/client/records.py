"""The small steps of tests that publish and read through a client."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import quoth.aio
from quoth import Client, Failure, Message, Producer, ProducerError, StagedPart, Transaction
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Call
from quothwire.protocol.messages import Operation

Connect = Callable[..., Client]
"""The fixture `connect` of the client's tests, and `twin`."""


def messages(client: Client, topic: str) -> list[Message]:
    return [message for batch in client.batches(topic) for message in batch]


def values(client: Client, topic: str) -> list[bytes]:
    return [value for batch in client.batches(topic) for value in batch.values]


def numbers(client: Client, topic: str) -> list[int]:
    return list(map(int, values(client, topic)))


async def values_there(client: quoth.aio.Client, topic: str) -> list[bytes]:
    return [value async for batch in client.batches(topic) for value in batch.values]


async def take(tail: quoth.aio.Tail | quoth.aio.Reading, number: int) -> list[bytes]:
    return [(await anext(tail)).value for _ in range(number)]


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def send_all(producer: Producer, sent: list[bytes]) -> None:
    for value in sent:
        producer.send(value)


def failures_of(ending: Callable[[], object]) -> list[Failure]:
    with pytest.raises(ProducerError) as caught:
        ending()
    return caught.value.failures


def staged(transaction: Transaction, number: int, *portions: list[bytes]) -> StagedPart:
    """A part that one attempt has staged, written in portions."""
    with transaction.part(number) as writer:
        for portion in portions:
            writer.write(portion)
        return writer.finish()


def at_once(threads: int, work: Callable[[int], object]) -> None:
    """Call a function with the numbers of so many threads, one in each of them."""
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, number) for number in range(threads)]:
            done.result()


def publishes(call: Call) -> bool:
    """The rule of a proxy that loses every publish."""
    return call.operation is Operation.PUBLISH


def busy(_: Call) -> QuothError:
    """The rule of a proxy that refuses every request for now."""
    return error("busy", "of the test")
