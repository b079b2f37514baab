"""RabbitMQ Streams: rstream, with messages as plain bytes, which it carries fastest."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from quothbench.load.clients import Ready
from quothbench.load.driver import VALUE
from quothbench.load.servers import free_ports, serving
from quothbench.peers.work import CALL, Peer, Way, Work, foreign, python_library
from quothwire.errors import error

SENT = 300_000
BATCHED = 400_000
"""Also the messages that are read."""
BATCH = 1_000
CREDITS = (2, 10, 100)
"""Chunks that are on their way to a consumer; 10 is rstream's default."""
TIMEOUT_S = 120.0

_USER = "guest"
"""A user that exists, with its name as the password, for clients on loopback."""
_STORED = "stored"
_MEASURED = "measured"

Send = Callable[[Any, str, int], Awaitable[None]]
"""Sends so many messages with a producer to a stream, and waits for all confirmations."""


@contextmanager
def _serving(directory: Path) -> Iterator[int]:
    """Run a node; yield its port for streams."""
    with node(directory) as (_, stream):
        yield stream


@contextmanager
def node(directory: Path) -> Iterator[tuple[int, int]]:
    """Run a node with all its files in a directory; yield its ports for AMQP and for streams.

    Raises `Disconnected`. Its port mapper is a server of the benchmark, too: the node would leave one behind.
    """
    amqp, stream, dist, mapper = free_ports(4)
    directory.mkdir()
    environment = _environment(directory, amqp, stream) | {
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(dist),
    }
    with (
        serving("epmd", ["epmd", "-d"], "epmd running", environment),
        serving("rabbitmq-server", [str(_script())], "Starting broker... completed", environment),
    ):
        yield amqp, stream


def _environment(directory: Path, amqp: int, stream: int) -> dict[str, str]:
    """Return ours without the variables of another RabbitMQ."""
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
        # The node takes the place of the script that starts it, and must not read its standard input.
        "RABBITMQ_ALLOW_INPUT": "1",
        "RABBITMQ_SERVER_START_ARGS": "-noinput",
    }


def _script() -> Path:
    """Return the script that starts a node as the current user; Debian's command uses another one."""
    found = shutil.which("rabbitmq-server")
    assert found is not None
    return Path(found).resolve().with_name("rabbitmq-server").resolve()


def _store(port: int) -> None:
    _write(lambda: None, port, BATCHED, _send_batches, _STORED)


def _write(ready: Ready, port: int, messages: int, send: Send, stream: str = _MEASURED) -> float:
    async def run() -> float:
        async with _producing(port, stream) as producer, asyncio.timeout(TIMEOUT_S):
            ready()
            began = perf_counter()
            await send(producer, stream, messages)
            return perf_counter() - began

    with foreign("rabbitmq"):
        return asyncio.run(run())


async def _publish(producer: Any, stream: str, messages: int) -> None:
    for _ in range(messages // CALL):
        await _send_groups(producer.send_batch, stream, 1, CALL, CALL)


async def _send_one_by_one(producer: Any, stream: str, messages: int) -> None:
    confirmed, all_confirmed = _confirmations(messages)
    send = producer.send
    for _ in range(messages):
        await send(stream, VALUE, on_publish_confirm=confirmed)
    await all_confirmed


async def _send_batches(producer: Any, stream: str, messages: int) -> None:
    await _send_groups(producer.send_batch, stream, messages // BATCH, BATCH, messages)


async def _send_sub_entries(producer: Any, stream: str, messages: int) -> None:
    await _send_groups(producer.send_sub_entry, stream, messages // CALL, CALL, messages // CALL)


async def _send_groups(send: Any, stream: str, groups: int, size: int, expected: int) -> None:
    """Send groups of messages, each made anew, and wait for so many confirmations."""
    confirmed, all_confirmed = _confirmations(expected)
    for _ in range(groups):
        values = []
        for _ in range(size):
            values.append(VALUE)
        await send(stream, values, on_publish_confirm=confirmed)
    await all_confirmed


def _read(ready: Ready, port: int, messages: int, credit: int) -> float:
    with foreign("rabbitmq"):
        return asyncio.run(_consume(ready, port, messages, credit))


async def _consume(ready: Ready, port: int, messages: int, credit: int) -> float:
    """Return the seconds from subscribing to the last message. A function takes each of them."""
    from rstream import Consumer, ConsumerOffsetSpecification, OffsetType

    count, last = 0, asyncio.get_running_loop().create_future()

    def take(_message: bytes, _context: object) -> None:
        nonlocal count
        count += 1
        if count == messages:
            last.set_result(None)

    first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
    async with (
        Consumer("127.0.0.1", port, username=_USER, password=_USER) as consumer,
        asyncio.timeout(TIMEOUT_S),
    ):
        ready()
        began = perf_counter()
        await consumer.subscribe(_STORED, take, offset_specification=first, initial_credit=credit)
        await last
        return perf_counter() - began


@asynccontextmanager
async def _producing(port: int, stream: str) -> AsyncIterator[Any]:
    """Make a stream, and a producer whose first message, already in it, has made it known to the server."""
    from rstream import Producer

    async with Producer("127.0.0.1", port, username=_USER, password=_USER) as producer:
        await producer.delete_stream(stream, missing_ok=True)
        await producer.create_stream(stream)
        await producer.send_wait(stream, VALUE)
        yield producer


def _confirmations(expected: int) -> tuple[Callable[[Any], None], asyncio.Future[None]]:
    """Return a callback for confirmations, and a future that ends with the last one, or with an error."""
    left, all_confirmed = expected, asyncio.get_running_loop().create_future()

    def confirmed(status: Any) -> None:
        nonlocal left
        left -= 1
        if all_confirmed.done():
            return
        if not status.is_confirmed:
            problem = error("internal", f"rabbitmq refused a message: code {status.response_code}")
            all_confirmed.set_exception(problem)
        elif not left:
            all_confirmed.set_result(None)

    return confirmed, all_confirmed


def versions(library: str) -> str:
    """Return the versions of a library and of the server, which is in the name of its directory."""
    from importlib.metadata import version  # slow to load, and --help does not need it

    server = _script().parent.parent.name.replace("_server-", "-server ")
    return f"{server}, {library} {version(library)}"


RABBITMQ = Peer(
    "confirmed",
    "confirmed: one node has it in the page cache of its system, and never calls fsync",
    {"rabbitmq-server": "rabbitmq-server", "epmd": "erlang-base"},
    partial(python_library, "rstream"),
    partial(versions, "rstream"),
    _serving,
    _store,
    (
        Way(Work.PUBLISH, f"send_batch of {CALL}", 60_000, _write, (_publish,)),
        Way(Work.SEND, "send", SENT, _write, (_send_one_by_one,)),
        Way(Work.SEND, f"send_batch of {BATCH:,}", BATCHED, _write, (_send_batches,)),
        Way(Work.SEND, f"send_sub_entry of {CALL}", 1_000_000, _write, (_send_sub_entries,)),
        *(
            Way(work, f"{credit} credits", BATCHED, _read, (credit,))
            for work in (Work.BATCHES, Work.READ)
            for credit in CREDITS
        ),
    ),
)
