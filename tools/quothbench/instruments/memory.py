"""`quoth bench memory`: the memory of a record, a topic and a long poll, and what grows with data.

The memory of the broker is what its process alone holds, measured before and after. It varies by some hundred
kilobytes of itself, so many topics or fetches are needed to see one. What a log allocates for its records is
measured exactly, in this process.
"""

from __future__ import annotations

import secrets
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
import zmq

from quothbench import options
from quothbench.figures import NO_GOAL, Goal, alternate, spreads
from quothbench.load import driver
from quothbench.load.clients import Clients, elapsed
from quothbench.load.driver import BATCH, VALUE
from quothbench.load.servers import Target, difference, own_broker, private_bytes
from quothbench.load.topics import fill
from quothbench.report import Report, ReportColumn, count, goal_columns, number, spread
from quothcli.cli.command import command, group
from quothcli.cli.options import WithoutBroker
from quothcli.printing.progress import progress
from quothlog import Log, LogOptions, index
from quothwire import batch
from quothwire.errors import error
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import WAIT_MS_MAX, Fetch, Fetched, GetStatus, Status
from quothwire.settings import SEGMENT_BYTES_MAX

RECORDS = 100
"""Records of a batch."""
BURST = 32
WARM_MAX = 500
"""Topics, or long polls, before the measurement: the first ones pay for what all of them share."""
HIBERNATING_S = 0.05
"""The idle time after which a topic hibernates."""
PAUSE_S = 0.02

CALLS = 1_000
"""Publishes of one measurement: 100,000 records, so a small topic is made anew for each."""
VALUES = (VALUE,) * RECORDS
BATCH_RECORDS = 10_000
TOPIC = "stored"

_LOG_FILES = tuple(str(Path(file).with_name("*")) for file in (index.__file__, batch.__file__))
"""The modules of a log: this process does other things meanwhile."""

RECORD_GOAL = Goal(0.1, 0.02)
TOPIC_GOAL = Goal(4_000, 1_000)
WAIT_GOAL = Goal(1_000, 500)
APPEND_GOAL = Goal(1.25, 1.05)


COLUMNS = (
    ReportColumn("figure", "figure", width=34),
    ReportColumn("unit", "unit", width=4),
    ReportColumn("how_many", "how many", count, 13),
    ReportColumn("each", "each", number),
    ReportColumn("few", "of few", number),
    ReportColumn("ratio", "ratio", spread, 17),
    *goal_columns(number, 6),
)


class MemoryBench(NamedTuple):
    """Measures one figure after the other, each with a broker of its own below a directory.

    batches: of a topic. waits: long polls. sizes: bytes of a small and of a large topic. records: of another
    two. pairs: of measurements.
    """

    directory: Path
    report: Report
    batches: int
    topics: int
    waits: int
    sizes: tuple[int, int]
    records: tuple[int, int]
    pairs: int

    def run(self) -> None:
        """Measure everything, a row for each figure."""
        self._log_records()
        self._hibernating_topics()
        self._long_polls()
        self._starts()
        self._appends()

    def _log_records(self) -> None:
        """Measure what an embedded log allocates for each record when it gets twice as many.

        It is the growth of its sparse index, and of all of it.
        """
        with options.folder(self.directory) as made, progress("records of an embedded log") as advance:

            def append(log: Log) -> tuple[int, int]:
                for size in parts_of(self.batches, BURST):
                    log.append_batches([BATCH] * size)
                    advance(size * RECORDS, size * len(BATCH))
                log.sync()
                taken = tracemalloc.take_snapshot()
                return _allocated(taken, index.__file__), _allocated(taken, *_LOG_FILES)

            with Log.open(made, options=LogOptions(size_limit=SEGMENT_BYTES_MAX)) as log:
                tracemalloc.start()
                try:
                    before, after = append(log), append(log)
                finally:
                    tracemalloc.stop()
        for part, one, other in zip(("sparse index", "all"), before, after, strict=True):
            self._each(f"a record, {part} of a log", self.batches * RECORDS, other - one, RECORD_GOAL)

    def _hibernating_topics(self) -> None:
        """Measure the memory of a hibernating topic."""
        topics = self.topics
        warm = min(WARM_MAX, topics)
        settings = {"worker_timeout": HIBERNATING_S, "topics_max": warm + topics}
        with new_broker(self.directory, **settings) as (broker, socket), progress("topics") as advance:

            def make(first: int, end: int) -> None:
                for part in parts_of(end - first, 100):
                    names = [f"topic {first + row:06}" for row in range(part)]
                    driver.keep_window(socket, [driver.repeated(one, [VALUE], 1)[0] for one in names])
                    advance(part, part * len(VALUE))
                    first += part
                wait_until(socket, lambda status: not status.active, "all topics hibernate")

            make(0, warm)
            grown = growth(broker, lambda: make(warm, warm + topics))
        self._each("a hibernating topic", topics, grown, TOPIC_GOAL)

    def _long_polls(self) -> None:
        """Measure the memory of a pending fetch."""
        waits, topic = self.waits, "polled"
        warm = min(WARM_MAX, waits)
        settings = {"worker_timeout": HIBERNATING_S, "waits_max": warm + waits}
        with new_broker(self.directory, **settings) as (broker, socket):
            driver.keep_window(socket, driver.repeated(topic, [VALUE], 1))
            end = driver.ask(socket, Fetch(after=POINTER_MAX), topic).reply
            assert isinstance(end, Fetched)
            wait_until(socket, lambda status: not status.active, "the topic hibernates")
            request = Fetch(after=end.newest, ordinal=end.end, wait_ms=WAIT_MS_MAX)

            def poll(first: int, end: int) -> None:
                for frames in driver.numbered(request, topic, end - first):
                    socket.send_multipart(frames)
                with driver.dealer(broker.url) as other:
                    wait_until(other, lambda status: status.waits >= end, "all fetches are pending")

            poll(0, warm)
            grown = growth(broker, lambda: poll(warm, warm + waits))
        self._each("a long poll", waits, grown, WAIT_GOAL)

    def _starts(self) -> None:
        """Start brokers on a small and on a large topic in turn."""
        values = [bytes(1_000)] * 64
        with options.folder(self.directory) as made, progress("data to start with") as advance:
            few, many = (made / f"{size} bytes" for size in self.sizes)
            for path, size in zip((few, many), self.sizes, strict=True):
                with own_broker(path) as broker:
                    fill(broker.url, TOPIC, values, -(-size // sum(map(len, values))), advance)
            pairs = alternate(lambda: _start(few), lambda: _start(many), self.pairs)
        for part, until in enumerate(("ready", "read and published")):
            seconds = [(few_s[part], many_s[part]) for few_s, many_s in pairs]
            self._compare(f"start-up until {until}", "ms", self.sizes[1], seconds, 1e3, NO_GOAL)

    def _appends(self) -> None:
        """Publish to a topic with few and to one with many records in turn."""
        few, many = self.records
        with (
            new_broker(self.directory) as (broker, _),
            Clients(1) as client,
            progress("records to append to") as advance,
        ):

            def store(topic: str, records: int) -> None:
                size = min(records, BATCH_RECORDS)
                fill(broker.url, topic, [bytes(10)] * size, records // size, advance)

            def append(topic: str) -> float:
                make = partial(driver.publishes, topic, VALUES, driver.WINDOW + CALLS)
                return elapsed(client.run(driver.windowed, (broker.url, make, driver.WINDOW))) / CALLS

            def append_to_few() -> float:
                topic = f"few records {secrets.token_hex(4)}"
                store(topic, few)
                return append(topic)

            store(TOPIC, many)
            pairs = alternate(append_to_few, lambda: append(TOPIC), self.pairs)
        self._compare("publish of 100 x 100 B", "us", many, pairs, 1e6, APPEND_GOAL)

    def _each(self, figure: str, how_many: int, grown: float | None, goal: Goal) -> None:
        """Print a row for bytes that so many records, topics or fetches hold together."""
        each = None if grown is None else grown / how_many
        self.report.row(figure, "B", how_many, each, None, None, *goal)

    def _compare(
        self, figure: str, unit: str, many: int, pairs: list[tuple[float, float]], scale: float, goal: Goal
    ) -> None:
        """Print a row for seconds with few and with many. scale: units in a second."""
        few_s, many_s, ratios = spreads(pairs)
        self.report.row(figure, unit, many, many_s.median * scale, few_s.median * scale, ratios, *goal)


@contextmanager
def new_broker(directory: Path, **settings: object) -> Iterator[tuple[Target, zmq.Socket[bytes]]]:
    """Run a broker below a directory and connect a socket to it; its data is removed at the end."""
    with (
        options.folder(directory) as made,
        own_broker(made, **settings) as broker,
        driver.dealer(broker.url) as socket,
    ):
        yield broker, socket


def growth(broker: Target, act: Callable[[], object]) -> float | None:
    """Return the bytes by which a call makes the broker's own memory grow; None if they are unknown."""
    before = private_bytes(broker.pid)
    act()
    return difference(private_bytes(broker.pid), before)


def _start(directory: Path) -> tuple[float, float]:
    """Start a broker; return the seconds until it is ready, and until it has answered two requests."""
    began = time.monotonic()
    with own_broker(directory) as broker:
        ready = time.monotonic() - began
        with driver.dealer(broker.url) as socket:
            driver.round_trips(socket, driver.fetches(TOPIC, [0], 1, 1))
            driver.round_trips(socket, driver.repeated(TOPIC, VALUES, 1))
        return ready, time.monotonic() - began


def _allocated(taken: tracemalloc.Snapshot, *files: str) -> int:
    """Return the bytes that lines of these files hold."""
    here = [tracemalloc.Filter(inclusive=True, filename_pattern=file) for file in files]
    return sum(trace.size for trace in taken.filter_traces(here).traces)


def wait_until(socket: zmq.Socket[bytes], check: Callable[[Status], Any], state: str) -> None:
    """Ask a broker for its status until that passes a check. Raises ``timed_out``."""
    until = time.monotonic() + driver.TIMEOUT_MS / 1_000
    while True:
        status = driver.ask(socket, GetStatus(limit=0)).reply
        assert isinstance(status, Status)
        if check(status):
            return
        if time.monotonic() > until:
            raise error("timed_out", f"the broker does not reach the state that {state}")
        time.sleep(PAUSE_S)


def parts_of(whole: int, most: int) -> Iterator[int]:
    """Yield parts of a number, of at most so much each."""
    for done in range(0, whole, most):
        yield min(most, whole - done)


app = group()


@command(app, "memory", "quoth bench memory", "quoth bench memory --sizes 64 4096 --pairs 21")
def memory(
    session: WithoutBroker,
    batches: Annotated[
        int, options.number("batches", "Batches behind which a topic's memory counts.")
    ] = 20_000,
    topics: Annotated[int, options.number("topics", "Topics that hibernate.")] = 10_000,
    waits: Annotated[int, options.number("waits", "Fetches that wait.")] = 10_000,
    sizes: Annotated[
        tuple[int, int],
        typer.Option("--sizes", metavar="FEW MANY", help="MiB of data that a broker starts with."),
    ] = (64, 1_024),
    records: Annotated[
        tuple[int, int],
        typer.Option("--records", metavar="FEW MANY", help="Records of a topic that is appended to."),
    ] = (10_000, 10_000_000),
    pairs: options.Pairs = options.PAIRS_MIN,
    directory: options.Directory = None,
) -> None:
    """Measure what records, topics and waits take, and what grows.

    First bytes of memory: of a record in an embedded log, of a topic that hibernates, of a fetch that
    waits. Then, in turn, what must not grow with the data: the time of a start with little and with much of
    it, and the time of a publish to a topic with few and with many records.
    """
    few_many = _ascending("--sizes", sizes, 2**20), _ascending("--records", records)
    conditions = {"records": f"{RECORDS} x {len(VALUE)} B a batch", "pairs": pairs}
    with options.folder(directory) as made:
        report = Report(session.printer, "memory", conditions, COLUMNS)
        MemoryBench(made, report, batches, topics, waits, *few_many, pairs).run()


def _ascending(option: str, numbers: tuple[int, int], unit: int = 1) -> tuple[int, int]:
    """Check two numbers and multiply them by a unit. Raises typer.BadParameter."""
    few, many = numbers
    if not 0 < few <= many:
        raise typer.BadParameter(f"{few} {many} are not a small number and a large one", param_hint=option)
    return few * unit, many * unit
