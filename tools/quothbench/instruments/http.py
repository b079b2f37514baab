"""`quoth bench http`: requests to `quoth web`, beside the same work by `quoth.aio`, in turn.

The client of HTTP is that of Python's library, over connections that stay open. It, the server and the broker
are three processes, the client of asyncio and the broker two: on two cores the server shares one.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Annotated, Any, NamedTuple

import quoth
import quoth.aio
from quothbench import options
from quothbench.figures import alternate, spreads
from quothbench.load.servers import serving
from quothbench.report import Report, ReportColumn, count, spread
from quothcli.cli.command import command, group
from quothwire.errors import error

AT_ONCE = 8
"""Connections, or tasks, that publish at once."""
_READY = "quoth-web: ready "
_NDJSON, _TEXT, _BATCHES = "application/x-ndjson", "text/plain", "application/vnd.quoth.batches"

COLUMNS = (
    ReportColumn("figure", "records/s", width=32),
    ReportColumn("quoth_aio", "quoth.aio", lambda figure: count(figure.median), 10),
    ReportColumn("http", "HTTP", lambda figure: count(figure.median), 10),
    ReportColumn("ratio_to_quoth_aio", "of quoth.aio", spread, 17),
)


class HttpBench(NamedTuple):
    """Measures one figure after the other. web: the URL of the server. calls: requests of one measurement."""

    on: options.OnBroker
    web: str
    report: Report
    values: list[bytes]
    calls: int
    pairs: int

    def run(self) -> None:
        """Measure everything, a row for each figure. The level of durability is written."""
        one, size = self.values[:1], len(self.values[0])
        for at_once in (1, AT_ONCE):
            self._row(
                f"publish of 1 x {size} B, {at_once} at once",
                partial(self._published, one, self.calls, at_once),
                partial(self._posted, one, self.calls, at_once),
            )
        batches = max(10, self.calls // len(self.values))
        self._row(
            f"publish of {len(self.values):,} records",
            partial(self._published, self.values, batches, 1),
            partial(self._posted, self.values, batches, 1),
        )
        (topic,) = self.on.topics.make()
        for _ in range(10 * batches):
            self.on.client.publish(topic, self.values)
        number = 10 * batches * len(self.values)
        for accept in (_NDJSON, _TEXT, _BATCHES):
            self._row(
                f"read, {accept.rpartition('/')[2]}",
                partial(self._read, topic, number, stored=accept == _BATCHES),
                partial(self._got, topic, number, accept),
            )

    def _row(self, figure: str, direct: Callable[[], float], over_http: Callable[[], float]) -> None:
        self.report.row(figure, *spreads(alternate(direct, over_http, self.pairs)))

    def _published(self, values: list[bytes], calls: int, at_once: int) -> float:
        """Return records a second of publishes by `quoth.aio`."""

        async def publish(client: quoth.aio.Client, topic: str) -> None:
            for _ in range(calls // at_once):
                await client.publish(topic, values)

        async def work(client: quoth.aio.Client) -> None:
            (topic,) = self.on.topics.make()
            await asyncio.gather(*(publish(client, topic) for _ in range(at_once)))

        return calls * len(values) / asyncio.run(self._seconds(work))

    def _read(self, topic: str, number: int, *, stored: bool) -> float:
        """Return records a second of a read by `quoth.aio`."""

        async def work(client: quoth.aio.Client) -> None:
            if stored:
                left = number
                async for batch in client.stored(topic):
                    left -= batch.header.records
                    if left <= 0:
                        break
            else:
                for message in await client.read(topic, limit=number):
                    message.value  # noqa: B018  it is made on access

        return number / asyncio.run(self._seconds(work))

    async def _seconds(self, work: Callable[[quoth.aio.Client], Awaitable[None]]) -> float:
        async with quoth.aio.connect(self.on.broker.url) as client:
            began = perf_counter()
            await work(client)
            return perf_counter() - began

    def _posted(self, values: list[bytes], calls: int, at_once: int) -> float:
        """Return records a second of requests that publish."""
        (topic,) = self.on.topics.make()
        body, headers = values[0], {"Content-Type": "application/octet-stream"}
        if len(values) > 1:
            body = b"".join(json.dumps({"value": value.decode()}).encode() + b"\n" for value in values)
            headers = {"Content-Type": _NDJSON}

        def post(_: int) -> None:
            with _connection(self.web) as connection:
                for _ in range(calls // at_once):
                    _answer(connection, "POST", f"/api/v1/topics/{topic}", body, headers)

        began = perf_counter()
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(post, range(at_once)))
        return calls * len(values) / (perf_counter() - began)

    def _got(self, topic: str, number: int, accept: str) -> float:
        """Return records a second of a request that reads."""
        with _connection(self.web) as connection:
            path = f"/api/v1/topics/{topic}/records?limit={number}"
            began = perf_counter()
            _answer(connection, "GET", path, None, {"Accept": accept})
            return number / (perf_counter() - began)


@contextmanager
def _connection(url: str) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"))
    try:
        yield connection
    finally:
        connection.close()


def _answer(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None, headers: Any
) -> bytes:
    """Send a request and return the body of its answer. Raises ``internal`` for an error."""
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    found = response.read()
    if response.status >= 400:
        raise error("internal", f"{method} {path}: {response.status} {found[:200]!r}")
    return found


app = group()


@command(app, "http", "quoth bench http", "quoth bench http --pairs 3 --size 1000")
def http_bench(
    session: options.MeasuredBroker,
    records: options.Records = 1_000,
    size: options.Size = 100,
    calls: Annotated[int, options.number("calls", "Records, or requests, of each measurement.")] = 2_000,
    pairs: options.Pairs = options.PAIRS_MIN,
    directory: options.Directory = None,
) -> None:
    """Compare requests to `quoth web` with the same work by quoth.aio.

    Both are measured in turn, at the level written. Each row shows the medians of records a second, and the
    median of the ratios with the smallest and the largest one.
    """
    conditions = {"records": records, "value_bytes": size, "calls": calls, "pairs": pairs, "level": "written"}
    with options.on_broker(session, directory) as on:
        start = [sys.executable, "-c", "from quothweb.main import main; main()", "--port", "0"]
        with serving("quoth web", [*start, "--url", on.broker.url], _READY) as web:
            report = on.report("http", conditions, COLUMNS)
            values = [b"x" * size] * records  # text, as most of what JSON carries
            HttpBench(on, web.url, report, values, calls, pairs).run()
