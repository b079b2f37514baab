"""Redis Streams: redis-py, with hiredis where that is installed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from quothbench.load.clients import Ready
from quothbench.load.driver import VALUE
from quothbench.load.servers import free_ports, serving
from quothbench.peers.work import (
    CALL,
    SMALL_ROUNDS,
    SMALL_STORED,
    Peer,
    Way,
    Work,
    foreign,
    python_library,
)

PIPELINES = (1_000, 3_000, 10_000)
STORED = 300_000
PAGES = (100, 1_000, 10_000)

_STORED = "stored"
_SMALL = "small"
_MEASURED = "measured"


@contextmanager
def _serving(directory: Path) -> Iterator[int]:
    """Run a server. It never rewrites its log while it is measured: Quoth has no such work."""
    (port,) = free_ports(1)
    directory.mkdir()
    settings = f"--port {port} --bind 127.0.0.1 --appendonly yes --appendfsync everysec"
    command = ["redis-server", *settings.split(), "--dir", str(directory)]
    command += ["--save", "", "--auto-aof-rewrite-percentage", "0"]
    with serving("redis-server", command, "Ready to accept connections"):
        yield port


@contextmanager
def connected(port: int) -> Iterator[Any]:
    """Connect with redis-py, which is not installed everywhere."""
    with foreign("redis"):
        import redis

        with redis.Redis(host="127.0.0.1", port=port) as connection:
            yield connection


def _store(port: int) -> None:
    """Store the messages to read, with the numbers from 1 on as ids."""
    with connected(port) as connection:
        pipeline = connection.pipeline(transaction=False)
        for stream, stored in ((_STORED, STORED), (_SMALL, SMALL_STORED)):
            for number in range(1, stored + 1):
                pipeline.xadd(stream, {b"v": VALUE}, id=number)
                if number % PIPELINES[0] == 0:
                    pipeline.execute()


def _write(ready: Ready, port: int, messages: int, size: int) -> float:
    with connected(port) as connection:
        pipeline = connection.pipeline(transaction=False)
        message = {b"v": VALUE}
        ready()
        try:
            began = perf_counter()
            for _ in range(messages // size):
                for _ in range(size):
                    pipeline.xadd(_MEASURED, message)
                pipeline.execute()
            took = perf_counter() - began
            assert connection.xlen(_MEASURED) == messages
        finally:
            connection.delete(_MEASURED)
    return took


def _read(
    ready: Ready, port: int, messages: int, size: int, look: bool, stream: str = _STORED, rounds: int = 1
) -> float:
    """Read page by page. look: at the value of each message. rounds: how often from the beginning."""
    with connected(port) as connection:
        ready()
        count, began = 0, perf_counter()
        for _ in range(rounds):
            start = b"-"
            while page := connection.xrange(stream, min=start, count=size):
                if look:
                    for _, fields in page:
                        count += fields[b"v"] == VALUE
                else:
                    count += len(page)
                start = b"(" + page[-1][0]
        took = perf_counter() - began
    assert count == messages
    return took


def _versions() -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to load, and --help does not need it

    done = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False)
    number = next((word[2:] for word in done.stdout.split() if word.startswith("v=")), "")
    hiredis = "without hiredis"
    with suppress(PackageNotFoundError):
        hiredis = f"hiredis {version('hiredis')}"
    return f"redis-server {number}, redis-py {version('redis')}, {hiredis}"


REDIS = Peer(
    "everysec",
    "appendfsync everysec: a power cut may take the last second",
    {"redis-server": "redis-server"},
    partial(python_library, "redis"),
    _versions,
    _serving,
    _store,
    (
        Way(Work.PUBLISH, f"pipeline of {CALL}", 60_000, _write, (CALL,)),
        *(Way(Work.SEND, f"pipeline of {size:,}", 120_000, _write, (size,)) for size in PIPELINES),
        *(Way(Work.BATCHES, f"XRANGE COUNT {size:,}", STORED, _read, (size, False)) for size in PAGES),
        *(Way(Work.READ, f"XRANGE COUNT {size:,}", STORED, _read, (size, True)) for size in PAGES),
        Way(
            Work.READ_SMALL,
            f"XRANGE COUNT {CALL}",
            SMALL_ROUNDS * SMALL_STORED,
            _read,
            (CALL, True, _SMALL, SMALL_ROUNDS),
        ),
    ),
)
