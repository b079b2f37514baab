"""Redis Streams: redis-py, with hiredis where that is installed, and redis-benchmark for what C can do."""

from __future__ import annotations

import csv
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from quothbench.load.clients import Clients
from quothbench.load.driver import VALUE
from quothbench.load.server import free_ports, serving
from quothbench.peers import work as peers
from quothbench.peers.work import CALL, Driven, Peer, Ready, Way, Work, foreign
from quothwire.errors import error

PROGRAMS = {"redis-server": "redis-server", "redis-benchmark": "redis-tools"}
MODULES = ("redis",)
READY = "Ready to accept connections"

PUBLISHED = 60_000
SENT = 120_000
PIPELINES = (1_000, 3_000, 10_000)
STORED = 300_000
PAGES = (100, 1_000, 10_000)
RAW_VALUE = "x" * len(VALUE)
RAW_WRITTEN = 256_000
"""A multiple of each pipeline. redis-benchmark sends whole pipelines; where they are more than the requests
that it was asked for, it may end with "All clients disconnected... aborting": `showThroughput` in its source
compares the two numbers if its timer of 250 ms is due just when the last client is done.
"""
RAW_WRITE_PIPELINES = (100, 1_000, 3_200)
"""The largest is what Quoth has on its way: 32 requests of 100 messages."""
RAW_READS = 8_000
RAW_READ_PIPELINES = (1, 16, 32, 100)

Message = tuple[bytes, dict[bytes, bytes]]
Use = Callable[[Sequence[Message]], int]
"""What is done with a page; returns how many messages there are."""

_STORED = "stored"
_MEASURED = "measured"
_clock = time.perf_counter


@contextmanager
def _serving(directory: Path, clients: Clients) -> Iterator[Redis]:
    """Run a server on a directory. Raises `Disconnected`.

    It never rewrites its log while it is measured: that is upkeep, which Quoth has none of here.
    """
    (port,) = free_ports(1)
    directory.mkdir()
    options = {
        "port": port,
        "bind": "127.0.0.1",
        "dir": directory,
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "auto-aof-rewrite-percentage": 0,
    }
    command = ["redis-server", *(word for key, value in options.items() for word in (f"--{key}", str(value)))]
    with serving("redis-server", command, READY):
        yield Redis(port, clients)


class Redis(Driven):
    """A server that runs."""

    def ways(self, work: Work) -> Sequence[Way]:
        """The ways to do some work."""
        match work:
            case Work.PUBLISH:
                return [self._pipelined(PUBLISHED, CALL)]
            case Work.SEND:
                return [self._pipelined(SENT, size) for size in PIPELINES]
            case Work.BATCHES:
                return [Way(f"XRANGE COUNT {page:,}", partial(self._read, _count, page)) for page in PAGES]
            case Work.READ:
                return [Way(f"XRANGE COUNT {page:,}", partial(self._read, _look, page)) for page in PAGES]
            case Work.RAW_WRITE:
                return [
                    Way(f"XADD, -P {size:,}", partial(self._raw_write, size), size == CALL)
                    for size in RAW_WRITE_PIPELINES
                ]
            case Work.RAW_READ:
                return [
                    Way(f"XRANGE, -P {size}", partial(self._raw_read, size)) for size in RAW_READ_PIPELINES
                ]

    def _pipelined(self, messages: int, size: int) -> Way:
        return Way(f"pipeline of {size:,}", lambda: self._rate(messages, _write, size, messages))

    def _read(self, use: Use, page: int) -> float:
        return self._rate(STORED, _read, self._stored, use, page)

    @cached_property
    def _stored(self) -> str:
        _store(self._port)
        return _STORED

    def _raw_write(self, pipeline: int) -> float:
        try:
            return self._benchmark(pipeline, RAW_WRITTEN, "XADD", _MEASURED, "*", "v", RAW_VALUE)
        finally:
            _forget(self._port)

    def _raw_read(self, pipeline: int) -> float:
        """Pages from everywhere: an id is a number here, which redis-benchmark picks below `-r`."""
        places = ["-r", str(STORED - CALL)]
        page = ["XRANGE", self._stored, "__rand_int__", "+", "COUNT", str(CALL)]
        return CALL * self._benchmark(pipeline, RAW_READS, *page, options=places)

    def _benchmark(self, pipeline: int, requests: int, *command: str, options: Sequence[str] = ()) -> float:
        """Let redis-benchmark do something with one client; returns requests a second."""
        numbers = ["-p", str(self._port), "-c", "1", "-P", str(pipeline), "-n", str(requests)]
        done = subprocess.run(
            ["redis-benchmark", *numbers, "--csv", *options, *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            (row,) = csv.DictReader(done.stdout.splitlines())
            return float(row["rps"])
        except (KeyError, ValueError):
            said = (done.stderr or done.stdout).strip()
            raise error("internal", f"redis-benchmark: {said}", "is redis-tools 7.0 or newer?") from None


def _connected(port: int) -> Any:
    """A client of redis-py, whose methods are checked where it is installed only."""
    import redis

    return redis.Redis(host="127.0.0.1", port=port)


@foreign("redis")
def _write(ready: Ready, port: int, size: int, messages: int) -> float:
    with _connected(port) as connection:
        pipeline = connection.pipeline(transaction=False)
        message = {b"v": VALUE}
        ready()
        try:
            began = _clock()
            for _ in range(messages // size):
                for _ in range(size):
                    pipeline.xadd(_MEASURED, message)
                pipeline.execute()
            took = _clock() - began
            assert connection.xlen(_MEASURED) == messages
        finally:
            connection.delete(_MEASURED)
    return took


@foreign("redis")
def _read(ready: Ready, port: int, stream: str, use: Use, page: int) -> float:
    with _connected(port) as connection:
        ready()
        count, start, began = 0, b"-", _clock()
        while messages := connection.xrange(stream, min=start, count=page):
            count, start = count + use(messages), b"(" + messages[-1][0]
        took = _clock() - began
    assert count == STORED
    return took


def _count(messages: Sequence[Message]) -> int:
    return len(messages)


def _look(messages: Sequence[Message]) -> int:
    """Count messages, looking at the value of each."""
    count = 0
    for _, fields in messages:
        count += fields[b"v"] == VALUE
    return count


@foreign("redis")
def _store(port: int) -> None:
    """Store what will be read, with the numbers from 1 on as ids."""
    with _connected(port) as connection:
        pipeline = connection.pipeline(transaction=False)
        for number in range(1, STORED + 1):
            pipeline.xadd(_STORED, {b"v": VALUE}, id=number)
            if number % PIPELINES[0] == 0:
                pipeline.execute()


@foreign("redis")
def _forget(port: int) -> None:
    with _connected(port) as connection:
        connection.delete(_MEASURED)


def _versions() -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to load, and --help does not need it

    said = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False).stdout
    number = next((word[2:] for word in said.split() if word.startswith("v=")), "")
    hiredis = "without hiredis"
    with suppress(PackageNotFoundError):
        hiredis = f"hiredis {version('hiredis')}"
    return f"redis-server {number}, redis-py {version('redis')}, {hiredis}"


REDIS = Peer(
    "everysec",
    "appendfsync everysec: a power cut may take the last second",
    partial(peers.missing, PROGRAMS, MODULES),
    _versions,
    _serving,
)
