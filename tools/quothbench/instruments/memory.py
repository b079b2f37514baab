"""`quoth bench memory`: what a record, a sleeping topic and a parked wait take, and what grows with the data.

Memory of the broker is what its process holds alone, measured before and after; some hundred kilobytes come
and go in it unasked, so it takes many of a kind to see one. What the log allocates is measured in this
process as well, exactly, with a log that gets the same appends.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import zmq

from quothbench.figures import Goal, Spread
from quothbench.instruments import growth
from quothbench.load import driver
from quothbench.load.clients import Clients, private_bytes
from quothbench.load.driver import VALUE
from quothbench.load.target import Target, own_broker
from quothbench.report import Column, Report, count, goal_columns, spread
from quothcli.printing.progress import Advance, progress
from quothlog import Log, LogOptions, index
from quothwire import batch
from quothwire.errors import error
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import WAIT_MS_MAX, Fetch, Fetched, GetStatus, Status
from quothwire.settings import SEGMENT_BYTES_MAX

RECORDS = 100
BATCH = batch.encode([VALUE] * RECORDS)
BURST = 32
WINDOW = 4
"""Few, since buffers for the largest burst so far are kept by whoever has taken it."""
WARM_MAX = 500
"""Topics, or waits, that are there before it is measured: the first ones pay for what all of them share."""
AWAKE_S, ASLEEP_S = 600.0, 0.05
"""After which a topic sleeps that is to stay awake, and one that is to sleep."""
PAUSE_S = 0.02
SETTLE_S = 0.3
"""For the sync behind the last publish."""

_LOG_FILES = tuple(str(Path(file).with_name("*")) for file in (index.__file__, batch.__file__))
"""What a log consists of; this process does other things meanwhile."""


RECORD_GOAL = Goal(0.1, 0.02)
TOPIC_GOAL = Goal(4_000, 1_000)
WAIT_GOAL = Goal(1_000, 500)
APPEND_GOAL = Goal(1.25, 1.05)


def number(figure: float) -> str:
    """A figure of any size, for people."""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


COLUMNS = (
    Column("figure", "figure", width=34),
    Column("unit", "unit", width=4),
    Column("how_many", "how many", count, 13),
    Column("each", "each", number),
    Column("few", "of few", number),
    Column("ratio", "ratio", spread, 17),
    *goal_columns(number, 6),
)


class Plan(NamedTuple):
    """How many of each: batches of a topic, sleeping topics, parked waits, and pairs of measurements.

    sizes: bytes of a small and of a large topic. records: of another two.
    """

    batches: int
    topics: int
    waits: int
    sizes: growth.FewMany
    records: growth.FewMany
    pairs: int


class Bench:
    """Measures one thing after the other, each with a broker of its own below a directory."""

    def __init__(self, directory: Path, report: Report, plan: Plan) -> None:
        self._directory = directory
        self._report = report
        self._plan = plan

    def run(self) -> None:
        """Measure everything, a row for each figure."""
        self._records()
        self._sleeping()
        self._parked()
        self._starts()
        self._appends()

    def _records(self) -> None:
        """What an active topic takes for each of its records."""
        records = self._plan.batches * RECORDS
        with (
            TemporaryDirectory(prefix="log", dir=self._directory) as made,
            progress("records of an embedded log") as advance,
        ):
            sparse, all_of_it = _embedded_growth(Path(made), self._plan.batches, advance)
        self._tell("a record, sparse index of a log", records, sparse, RECORD_GOAL)
        self._tell("a record, all of a log", records, all_of_it, RECORD_GOAL)
        with (
            self._broker("records", worker_timeout=AWAKE_S) as (broker, socket),
            progress("records of a topic") as advance,
        ):
            growth.create(broker.url, "records", size_limit=SEGMENT_BYTES_MAX)

            def publish() -> None:
                for size in _parts(self._plan.batches, 1_000):
                    driver.keep_window(socket, driver.repeated("records", [VALUE] * RECORDS, size), WINDOW)
                    advance(size * RECORDS, size * len(BATCH))
                time.sleep(SETTLE_S)

            publish()
            grown = _growth(broker, publish)
        self._tell("a record, the broker's process", records, grown, RECORD_GOAL)

    def _sleeping(self) -> None:
        """What a topic takes while it sleeps."""
        topics = self._plan.topics
        warm = min(WARM_MAX, topics)
        settings = {"worker_timeout": ASLEEP_S, "topics_max": warm + topics}
        with self._broker("sleeping", **settings) as (broker, socket), progress("topics") as advance:

            def make(first: int, end: int) -> None:
                for part in _parts(end - first, 100):
                    names = [f"topic {first + row:06}" for row in range(part)]
                    requests = [driver.repeated(name, [VALUE], 1)[0] for name in names]
                    driver.keep_window(socket, requests, BURST)
                    advance(part, part * len(VALUE))
                    first += part
                _until(socket, lambda status: not status.active, "all topics sleep")

            make(0, warm)
            grown = _growth(broker, lambda: make(warm, warm + topics))
        self._tell("a sleeping topic", topics, grown, TOPIC_GOAL)

    def _parked(self) -> None:
        """What a fetch takes that waits."""
        waits = self._plan.waits
        warm = min(WARM_MAX, waits)
        settings = {"worker_timeout": ASLEEP_S, "waits_max": warm + waits}
        with self._broker("parked", **settings) as (broker, socket):
            driver.keep_window(socket, driver.repeated("parked", [VALUE], 1), 1)
            end = driver.ask(socket, Fetch(after=POINTER_MAX), "parked").reply
            assert isinstance(end, Fetched)
            _until(socket, lambda status: not status.active, "the topic sleeps")
            waiting = Fetch(after=end.newest, ordinal=end.end, wait_ms=WAIT_MS_MAX)

            def park(first: int, end: int) -> None:
                for request in driver.requests(waiting, "parked", end - first):
                    socket.send_multipart(request)
                with driver.dealer(broker.url) as other:
                    _until(other, lambda status: status.waits >= end, "all fetches wait")

            park(0, warm)
            grown = _growth(broker, lambda: park(warm, warm + waits))
        self._tell("a parked wait", waits, grown, WAIT_GOAL)

    def _starts(self) -> None:
        sizes = self._plan.sizes
        with (
            TemporaryDirectory(prefix="starts", dir=self._directory) as made,
            progress("data to start with") as advance,
        ):
            pairs = growth.starts(Path(made), sizes, self._plan.pairs, advance)
        ready = [(few.ready, many.ready) for few, many in pairs]
        self._compare("start-up until ready", "ms", sizes.many, ready, 1e3, Goal())
        answered = [(few.answered, many.answered) for few, many in pairs]
        self._compare("start-up until read and published", "ms", sizes.many, answered, 1e3, Goal())

    def _appends(self) -> None:
        records = self._plan.records
        with (
            self._broker("appends") as (broker, _),
            Clients(1) as client,
            progress("records to append to") as advance,
        ):
            pairs = growth.appends(broker, client, records, self._plan.pairs, advance)
        self._compare("publish of 100 x 100 B", "us", records.many, pairs, 1e6, APPEND_GOAL)

    @contextmanager
    def _broker(self, name: str, **settings: object) -> Iterator[tuple[Target, zmq.Socket[bytes]]]:
        """A broker and a socket for it; its data is removed at the end."""
        with (
            TemporaryDirectory(prefix=name, dir=self._directory) as made,
            own_broker(Path(made), **settings) as broker,
            driver.dealer(broker.url) as socket,
        ):
            yield broker, socket

    def _tell(self, figure: str, how_many: int, grown: float | None, goal: Goal) -> None:
        each = None if grown is None else grown / how_many
        self._report.row(figure, "B", how_many, each, None, None, *goal)

    def _compare(
        self, figure: str, unit: str, many: int, pairs: list[tuple[float, float]], scale: float, goal: Goal
    ) -> None:
        """Print a row for what was measured alternately, with few and with many; scale: of the unit."""
        self._report.row(
            figure,
            unit,
            many,
            median(one for _, one in pairs) * scale,
            median(one for one, _ in pairs) * scale,
            Spread.of([of_many / of_few for of_few, of_many in pairs]),
            *goal,
        )


def _growth(broker: Target, act: Callable[[], object]) -> int | None:
    """Bytes by which the broker's own memory grows while something is done; None if the system tells none."""
    before = private_bytes(broker.pid)
    act()
    after = private_bytes(broker.pid)
    return None if before is None or after is None else after - before


def _embedded_growth(directory: Path, batches: int, advance: Advance) -> tuple[int, int]:
    """Bytes by which the sparse index, and all of a log, grow between so many batches and twice as many."""
    options = LogOptions(size_limit=SEGMENT_BYTES_MAX)
    with Log.open(directory, options=options) as log:

        def append() -> tuple[int, int]:
            for size in _parts(batches, BURST):
                log.append_batches([BATCH] * size)
                advance(size * RECORDS, size * len(BATCH))
            log.sync()
            taken = tracemalloc.take_snapshot()
            return _allocated(taken, index.__file__), _allocated(taken, *_LOG_FILES)

        tracemalloc.start()
        try:
            before, after = append(), append()
        finally:
            tracemalloc.stop()
    return after[0] - before[0], after[1] - before[1]


def _allocated(taken: tracemalloc.Snapshot, *files: str) -> int:
    """Bytes that lines in these files hold."""
    here = [tracemalloc.Filter(inclusive=True, filename_pattern=file) for file in files]
    return sum(trace.size for trace in taken.filter_traces(here).traces)


def _until(socket: zmq.Socket[bytes], check: Callable[[Status], Any], what: str) -> None:
    """Ask a broker for its status until it is as it has to be. Raises ``timed_out``."""
    until = time.monotonic() + driver.PATIENCE_MS / 1_000
    while True:
        status = driver.ask(socket, GetStatus(limit=0)).reply
        assert isinstance(status, Status)
        if check(status):
            return
        if time.monotonic() > until:
            raise error("timed_out", f"it does not come about that {what}")
        time.sleep(PAUSE_S)


def _parts(whole: int, most: int) -> Iterator[int]:
    """A number as numbers of at most so much."""
    for done in range(0, whole, most):
        yield min(most, whole - done)
