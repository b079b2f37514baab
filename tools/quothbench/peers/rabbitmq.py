"""RabbitMQ Streams: rstream, with messages as plain bytes, which it carries fastest."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from quothbench.load.clients import Clients
from quothbench.load.driver import VALUE
from quothbench.load.server import free_ports, serving
from quothbench.peers import work as peers
from quothbench.peers.work import CALL, Driven, Peer, Ready, Way, Work, foreign
from quothwire.errors import error

PROGRAMS = {"rabbitmq-server": "rabbitmq-server", "epmd": "erlang-base"}
MODULES = ("rstream",)
READY = "Starting broker... completed"
EPMD_READY = "epmd running"

PUBLISHED = 60_000
SENT = 300_000
BATCHED = 400_000
"""Also what is read."""
BATCH = 1_000
SUB_ENTRIES = 10_000
"""Sub-entries of 100 messages in one measurement: what gathers them leaves every half second."""
CREDITS = (2, 10, 100)
"""Chunks that are on their way to a consumer; 10 is what rstream has."""
PATIENCE_S = 120.0

_USER = "guest"
"""It is there, with its name as the password, for whoever comes from loopback."""
_STORED = "stored"
_MEASURED = "measured"
_clock = time.perf_counter

Confirmed = Callable[[Any], None]
Send = Callable[[Any, str, Confirmed], Awaitable[None]]
"""Sends everything with a producer to a stream; what is called for each message or sub-entry is given."""


@contextmanager
def _serving(directory: Path, clients: Clients) -> Iterator[RabbitMQ]:
    """Run a node with all that it writes in a directory. Raises `Disconnected`.

    Its port mapper is one of our own: the node would leave one behind that outlives it.
    """
    amqp, stream, dist, mapper = free_ports(4)
    directory.mkdir()
    environment = _environment(directory, amqp, stream) | {
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(dist),
    }
    with (
        serving("epmd", ["epmd", "-d"], EPMD_READY, environment),
        serving("rabbitmq-server", [str(_script())], READY, environment),
    ):
        yield RabbitMQ(stream, clients)


def _environment(directory: Path, amqp: int, stream: int) -> dict[str, str]:
    """Ours, without what it says about another RabbitMQ."""
    enabled, settings = directory / "enabled_plugins", directory / "rabbitmq.conf"
    enabled.write_text("[rabbitmq_stream].\n")
    settings.write_text(
        f"listeners.tcp.1 = 127.0.0.1:{amqp}\n"
        f"stream.listeners.tcp.1 = 127.0.0.1:{stream}\n"
        "stream.advertised_host = 127.0.0.1\n"
        f"stream.advertised_port = {stream}\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
    return kept | {
        "HOME": str(directory),
        "RABBITMQ_NODENAME": "quoth-bench@localhost",
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(enabled),
        "RABBITMQ_CONFIG_FILE": str(settings),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "advanced.config"),
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        # So the node takes the place of the script that starts it; it must not read anything for all that.
        "RABBITMQ_ALLOW_INPUT": "1",
        "RABBITMQ_SERVER_START_ARGS": "-noinput",
    }


def _script() -> Path:
    """What starts a node as whoever we are; Debian's command does it as a user of its own."""
    found = shutil.which("rabbitmq-server")
    assert found is not None
    return Path(found).resolve().with_name("rabbitmq-server").resolve()


class RabbitMQ(Driven):
    """A node that runs."""

    def ways(self, work: Work) -> Sequence[Way]:
        """The ways to do some work. There is no client in C that comes with it."""
        match work:
            case Work.PUBLISH:
                return [Way(f"send_batch of {CALL}", lambda: self._rate(PUBLISHED, _publish))]
            case Work.SEND:
                return [
                    Way("send", lambda: self._rate(SENT, _send), alike=True),
                    Way(f"send_batch of {BATCH:,}", lambda: self._rate(BATCHED, _send_batches)),
                    Way(
                        f"send_sub_entry of {CALL}",
                        lambda: self._rate(SUB_ENTRIES * CALL, _send_sub_entries),
                    ),
                ]
            case Work.BATCHES | Work.READ:
                return [Way(f"{credit} credits", partial(self._read, credit)) for credit in CREDITS]
            case _:
                return []

    def _read(self, credit: int) -> float:
        return self._rate(BATCHED, _read, self._stored, credit)

    @cached_property
    def _stored(self) -> str:
        self._clients.run(_store, (self._port,))
        return _STORED


@foreign("rabbitmq")
def _publish(ready: Ready, port: int) -> float:
    return asyncio.run(_publishing(ready, port))


@foreign("rabbitmq")
def _send(ready: Ready, port: int) -> float:
    return asyncio.run(_sending(ready, port, _MEASURED, SENT, _one_by_one))


@foreign("rabbitmq")
def _send_batches(ready: Ready, port: int) -> float:
    return asyncio.run(_sending(ready, port, _MEASURED, BATCHED, _batched))


@foreign("rabbitmq")
def _send_sub_entries(ready: Ready, port: int) -> float:
    return asyncio.run(_sending(ready, port, _MEASURED, SUB_ENTRIES, _sub_entered))


@foreign("rabbitmq")
def _store(ready: Ready, port: int) -> float:
    return asyncio.run(_sending(ready, port, _STORED, BATCHED, _batched))


@foreign("rabbitmq")
def _read(ready: Ready, port: int, stream: str, credit: int) -> float:
    return asyncio.run(_reading(ready, port, stream, credit))


async def _publishing(ready: Ready, port: int) -> float:
    values = [VALUE] * CALL
    async with _producing(port, _MEASURED) as producer, asyncio.timeout(PATIENCE_S):
        ready()
        began = _clock()
        for _ in range(PUBLISHED // CALL):
            confirmed, all_of_them = _confirmations(CALL)
            await producer.send_batch(_MEASURED, values, on_publish_confirm=confirmed)
            await all_of_them
        return _clock() - began


async def _sending(ready: Ready, port: int, stream: str, expected: int, send: Send) -> float:
    """Send everything to a new stream, then wait for all confirmations that are expected."""
    async with _producing(port, stream) as producer, asyncio.timeout(PATIENCE_S):
        ready()
        began = _clock()
        confirmed, all_of_them = _confirmations(expected)
        await send(producer, stream, confirmed)
        await all_of_them
        return _clock() - began


async def _one_by_one(producer: Any, stream: str, confirmed: Confirmed) -> None:
    send = producer.send
    for _ in range(SENT):
        await send(stream, VALUE, on_publish_confirm=confirmed)


async def _batched(producer: Any, stream: str, confirmed: Confirmed) -> None:
    for _ in range(BATCHED // BATCH):
        values = []
        for _ in range(BATCH):
            values.append(VALUE)
        await producer.send_batch(stream, values, on_publish_confirm=confirmed)


async def _sub_entered(producer: Any, stream: str, confirmed: Confirmed) -> None:
    for _ in range(SUB_ENTRIES):
        values = []
        for _ in range(CALL):
            values.append(VALUE)
        await producer.send_sub_entry(stream, values, on_publish_confirm=confirmed)


async def _reading(ready: Ready, port: int, stream: str, credit: int) -> float:
    """From subscribing to the last message, each of which is handed to a function."""
    from rstream import Consumer, ConsumerOffsetSpecification, OffsetType

    count, last = 0, asyncio.get_running_loop().create_future()

    def take(_message: bytes, _context: object) -> None:
        nonlocal count
        count += 1
        if count == BATCHED:
            last.set_result(None)

    first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
    async with (
        Consumer("127.0.0.1", port, username=_USER, password=_USER) as consumer,
        asyncio.timeout(PATIENCE_S),
    ):
        ready()
        began = _clock()
        await consumer.subscribe(stream, take, offset_specification=first, initial_credit=credit)
        await last
        return _clock() - began


@asynccontextmanager
async def _producing(port: int, stream: str) -> AsyncIterator[Any]:
    """A producer that is known to the server: a first message of it is in the stream, which is new."""
    from rstream import Producer

    async with Producer("127.0.0.1", port, username=_USER, password=_USER) as producer:
        await producer.delete_stream(stream, missing_ok=True)
        await producer.create_stream(stream)
        await producer.send_wait(stream, VALUE)
        yield producer


def _confirmations(expected: int) -> tuple[Confirmed, asyncio.Future[None]]:
    """What to call for each, and what is done when all have come, or one was refused."""
    left, all_of_them = expected, asyncio.get_running_loop().create_future()

    def confirmed(status: Any) -> None:
        nonlocal left
        left -= 1
        if all_of_them.done():
            return
        if not status.is_confirmed:
            refusal = error("internal", f"rabbitmq refused a message: code {status.response_code}")
            all_of_them.set_exception(refusal)
        elif not left:
            all_of_them.set_result(None)

    return confirmed, all_of_them


def _versions() -> str:
    """The server's version is in the name of the directory that its scripts lie in."""
    server = _script().parent.parent.name.replace("_server-", "-server ")
    from importlib.metadata import version  # loads much of Python's email, which --help does not need

    return f"{server}, rstream {version('rstream')}"


RABBITMQ = Peer(
    "confirmed",
    "confirmed: one node has it in the page cache of its system, and never calls fsync",
    partial(peers.missing, PROGRAMS, MODULES),
    _versions,
    _serving,
)
