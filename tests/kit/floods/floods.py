"""The floods by name: what each attacker sends. Values of `FLOODS` are made in the attacker's process.

The topics must be there: `BIG` with more than 4 MiB of records, and the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice, repeat

from kit.floods.engine import End, Plan, Reads
from kit.forged import header
from kit.zmtp import GREETING, MORE, frame, message, request
from quothwire import batch
from quothwire.batch import BATCH_BYTES_MAX
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.group_messages import GroupFetch, OpenGroup
from quothwire.protocol.messages import (
    WAIT_MS_MAX,
    CreateTopic,
    Fetch,
    Operation,
    Ping,
    Publish,
    Request,
    Stage,
)

BIG, SLOW, LIMITED, STAGED, GROUPED = "big", "slow", "limited", "staged", "grouped"
FETCHED_BYTES = 4 * 2**20
WAITS = 100_000
PREFIXES = 100_000
IDLE = 5_000
_SMALL_BUFFER = 4_096
_TOGETHER = 500
"""Requests with names of their own that are made at once."""


def once(*parts: bytes) -> Callable[[], Iterable[bytes]]:
    """Send these on each connection, and then nothing."""
    return lambda: parts


def endlessly(part: bytes) -> Callable[[], Iterable[bytes]]:
    """Send these bytes again and again."""
    return lambda: repeat(part)


def numbered(make: Callable[[str], Request], topic: str = "", payload: bytes | None = None) -> Plan:
    """Plan requests without end, each with a name that no other one has. topic: "" for the name itself."""
    names = (f"{os.getpid()}-{number}" for number in count())

    def chunks() -> Iterator[bytes]:
        while True:
            some = islice(names, _TOGETHER)
            yield b"".join(request(make(name), topic or name, payload) for name in some)

    return Plan(chunks, reads=Reads.ALL)


# -- connections --------------------------------------------------------------------------------------------


def idle() -> Plan:
    """Open connections that send nothing."""
    return Plan(once(), b"", connections=IDLE)


def noise() -> Plan:
    """Send what is no handshake, and keep the connection."""
    sent = [
        bytes(1_000),
        bytes.fromhex("1603010200010001fc0303") + bytes(500),
        GREETING[:11],
        GREETING.replace(b"NULL\0", b"PLAIN"),
        GREETING + b"\xde\xad\xbe\xef" * 100,
        GREETING + b"\x04\x26\x05READY",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100,
    ]
    numbers = count()
    return Plan(lambda: [sent[next(numbers) % len(sent)]], b"", connections=200)


def churn() -> Plan:
    """Connect, send a request and go, without end."""
    return Plan(once(request(Ping())), connections=50, end=End.RESET)


def subscriptions() -> Plan:
    """Subscribe to prefixes without number, and go."""

    def chunks() -> Iterator[bytes]:
        for _ in range(PREFIXES // _TOGETHER):
            noise = os.urandom(20 * _TOGETHER)
            yield b"".join(frame(b"\1" + noise[at : at + 20]) for at in range(0, len(noise), 20))

    return Plan(chunks, b"SUB", end=End.CLOSED, announcements=True)


def namesakes() -> Plan:
    """Send large messages on connections that claim the same identity, and go."""
    sent = message([b"", b"ping", bytes(2**20)]) * 8
    return Plan(once(sent), connections=4, end=End.RESET, identity=b"the same")


# -- messages without end -----------------------------------------------------------------------------------


def small_parts() -> Plan:
    """Send messages that never end, of parts of a byte."""
    return Plan(endlessly(frame(b"x", MORE) * 30_000), connections=4)


def large_parts() -> Plan:
    """Send messages that never end, of parts of a MiB."""
    return Plan(endlessly(frame(bytes(2**20), MORE)), connections=4)


# -- readers ------------------------------------------------------------------------------------------------


def unread() -> Plan:
    """Fetch 256 MiB on each of 30 connections, and read nothing."""
    fetches = request(Fetch(bytes_max=FETCHED_BYTES), BIG) * 64
    return Plan(once(fetches), connections=30, receive_buffer=_SMALL_BUFFER)


def slow_readers() -> Plan:
    """Fetch large replies and read a byte a second of each, also of many connections."""
    fetch = request(Fetch(bytes_max=FETCHED_BYTES), BIG)
    return Plan(
        once(fetch),
        connections=200,
        reads=Reads.ONE_BYTE_A_SECOND,
        receive_buffer=_SMALL_BUFFER,
    )


def waits() -> Plan:
    """Let fetches wait for ten minutes, and go without them."""
    fetch = request(Fetch(after=POINTER_MAX - 1, wait_ms=WAIT_MS_MAX), BIG)
    return Plan(once(*[fetch * 1_000] * (WAITS // 1_000)), end=End.CLOSED)


def group_fetches() -> Plan:
    """Let members of one group wait for ten minutes, each with a name of its own."""
    return numbered(lambda name: GroupFetch("flooded", name, wait_ms=WAIT_MS_MAX), GROUPED)


# -- requests -----------------------------------------------------------------------------------------------


def pings() -> Plan:
    """Send the cheapest request at full speed, and read the replies."""
    return Plan(endlessly(request(Ping()) * 1_000), connections=4, reads=Reads.ALL)


def malformed() -> Plan:
    """Send requests with every kind of mistake at full speed."""
    wrong = [
        [b"ping"],
        [b"x"] * 100,
        [b"", b"publish"],
        [b"", b"\xff\xfe"],
        [b"", header(99), b"", b"\x80"],
        [b"", header(Operation.FETCH), b"../x", b"\x80"],
        [b"", header(Operation.FETCH), b"t", b"\x91" * 1_000 + b"\x80"],
        [b"", header(Operation.FETCH), b"t", b"\x81\xa5after\xdd\xff\xff\xff\xff"],
        [b"", header(Operation.PUBLISH), BIG.encode(), b"\x80", bytes(1_000)],
    ]
    return Plan(endlessly(b"".join(map(message, wrong)) * 100), connections=4, reads=Reads.ALL)


def large_publishes() -> Plan:
    """Send the largest batches to a topic whose publishes wait for the disk."""
    largest = batch.encode([bytes(BATCH_BYTES_MAX - 1_024)])
    return Plan(endlessly(request(Publish(), SLOW, largest)), connections=8, reads=Reads.ALL)


def unread_publishes() -> Plan:
    """Publish small records at full speed, and read no acknowledgement."""
    publish = request(Publish(), LIMITED, batch.encode([b"x" * 100]))
    return Plan(endlessly(publish * 1_000), connections=4, receive_buffer=_SMALL_BUFFER)


def staged_applications() -> Plan:
    """Begin transactions of applications without end."""
    one = batch.encode([b"x"])
    return numbered(lambda name: Stage(name, 1, 0, 1), STAGED, one)


def topics() -> Plan:
    """Create topics without end."""
    return numbered(lambda name: CreateTopic())


def groups() -> Plan:
    """Create groups without end."""
    return numbered(lambda name: OpenGroup(name), GROUPED)


FLOODS: dict[str, Callable[[], Plan]] = {
    one.__name__: one
    for one in (
        idle,
        noise,
        churn,
        subscriptions,
        namesakes,
        small_parts,
        large_parts,
        unread,
        slow_readers,
        waits,
        group_fetches,
        pings,
        malformed,
        large_publishes,
        unread_publishes,
        staged_applications,
        topics,
        groups,
    )
}
"""Every flood by the name of its function."""
