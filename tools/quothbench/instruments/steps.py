"""`quoth bench steps`: the time of each step of a call, repeated by itself.

The same functions that the client and the broker call, in one thread of this process and with everything in
the processor's caches: the least that a step costs. Beside them the cost of threads. The sum is less than the
time of a call, since there are system calls, sockets and other processes between the steps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated, Any, NamedTuple

import typer

from quothbench import options
from quothbench.figures import Goal, Spread
from quothbench.load import driver
from quothbench.load.driver import BATCH, VALUE
from quothbench.report import Report, ReportColumn, goal_columns
from quothcli.cli.command import command, group
from quothcli.cli.options import WithoutBroker
from quothcli.cli.quantities import span
from quothd.requests.pending_request import BinaryResponder
from quothd.threads.outbox import Outbox
from quothlog import Log
from quothwire import batch
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetched, Published
from quothwire.text.quantity import format_span

TRIALS = 9
TRIAL_S = 0.05
VALUES = [VALUE] * 100
MANY = [VALUE] * 1_000
SMALL = [VALUE[:20]] * 1_000
TOPIC = "steps"
BURST = 16
"""Publishes that reach the log together while one client keeps 32 on their way."""
ROUTE = [b"client", b""]

ENCODE_GOAL, DECODE_GOAL = Goal(130, 100), Goal(160, 100)
WRITE_GOAL, READ_GOAL = Goal(322, 200), Goal(316, 200)

COLUMNS = (
    ReportColumn("step", "step", width=46),
    ReportColumn("of", "of", width=12),
    ReportColumn("nanoseconds", "ns", lambda figure: f"{figure.median:,.0f} ({figure.low:,.0f})", 18),
    *goal_columns(lambda figure: f"{figure:,.0f}", 5),
)


class Step(NamedTuple):
    """A step of a call, or of the work on a record. amount: calls or records that one execution is for."""

    name: str
    of: str
    run: Callable[[], object]
    amount: int = 1
    goal: Goal = Goal()


def publish_steps(directory: Path) -> Iterator[Step]:
    """Yield the steps of a publish."""
    requests = driver.publishes(TOPIC, VALUES, BURST)
    frames, payload = requests[0][1:], requests[0][-1]
    responder = BinaryResponder(ROUTE, binary_codec.decode_call(frames))
    published = Published(1, 2, 101, len(VALUES), "written", False)
    reply = responder.reply(published)[len(ROUTE) :]
    yield Step("publish: encode 100 x 100 B", "call", lambda: batch.encode(VALUES))
    yield Step("publish: read the request", "call", lambda: _request(frames))
    yield Step("publish: check the batch", "call", lambda: batch.check(payload))
    with Log.open(directory / "published") as log:
        burst = [BATCH] * BURST
        name = "publish: check, append, write"
        yield Step(f"{name}, 16 at once", "call", lambda: log.append_batches(burst), BURST)
        yield Step(f"{name}, alone", "call", lambda: log.append_batches([BATCH]))
    yield Step("publish: write the reply", "call", lambda: responder.reply(published))
    yield Step("publish: read the reply", "call", lambda: binary_codec.decode_answer(reply))


def fetch_steps(directory: Path) -> Iterator[Step]:
    """Yield the steps of a fetch."""
    with Log.open(directory / "fetched") as log:
        cursors = [log.append(VALUES).last for _ in range(200)]
        log.sync()
        frames = driver.fetches(TOPIC, [cursors[0]], len(VALUES), 2**20)[0][1:]
        found = log.fetch(cursors[0], len(VALUES))
        assert found is not None
        responder = BinaryResponder(ROUTE, binary_codec.decode_call(frames))
        data, log_id = found.data, log.log_id

        def read_on() -> None:
            for cursor in cursors[:-1]:
                log.fetch(cursor, len(VALUES))

        yield Step("fetch: read the request", "call", lambda: _request(frames))
        yield Step("fetch: find and read 100 x 100 B", "call", read_on, len(cursors) - 1)
        yield Step("fetch: write the reply", "call", lambda: responder.reply(Fetched(1, 2, 3, 0, 4), data))
        yield Step("fetch: check and decode 100 x 100 B", "call", lambda: batch.decode(data, log_id))


def thread_steps(_: Path) -> Iterator[Step]:
    """Yield a hand-over to a waiting thread and back, and a wakeup without a sleeping thread."""
    there: SimpleQueue[bool] = SimpleQueue()
    back: SimpleQueue[None] = SimpleQueue()

    def echo() -> None:
        while there.get():
            back.put(None)

    def there_and_back() -> None:
        there.put(True)
        back.get()

    thread = threading.Thread(target=echo)
    thread.start()
    try:
        yield Step("threads: wake one, be woken by it", "both", there_and_back)
    finally:
        there.put(False)
        thread.join()
    outbox: Outbox[Any] = Outbox()

    def wake_and_drain() -> None:
        outbox.wake()
        outbox.attend(readable=True)

    yield Step("threads: ring and hush, no thread sleeps", "both", wake_and_drain)
    outbox.close()


def record_steps(directory: Path) -> Iterator[Step]:
    """Yield what is done for a record: in a batch of a thousand, and in an embedded log."""
    raw = batch.encode(MANY)
    yield Step("encode 1,000 x 100 B", "record", lambda: batch.encode(MANY), 1_000, ENCODE_GOAL)
    yield Step("check and decode 1,000 x 100 B", "record", lambda: batch.decode(raw), 1_000, DECODE_GOAL)
    with Log.open(directory / "embedded") as log:
        yield Step("Log.append 1,000 x 20 B", "record", lambda: log.append(SMALL), 1_000, WRITE_GOAL)
        log.roll()
        log.append(SMALL)
        first = log.newest - len(SMALL)
        yield Step("Log.read 1,000 x 20 B", "record", lambda: list(log.read(first)), 1_000, READ_GOAL)


def measure(directory: Path, report: Report, trial: float) -> None:
    """Measure one step after the other, a row for each. trial: seconds of a trial."""
    for steps in (publish_steps, fetch_steps, thread_steps, record_steps):
        for step in steps(directory):
            times = max(1, round(trial / max(1e-7, _seconds(step.run, 1))))
            trials = [_seconds(step.run, times) / times / step.amount * 1e9 for _ in range(TRIALS)]
            report.row(step.name, step.of, Spread.of(trials), *step.goal)


def _request(frames: Sequence[bytes]) -> object:
    return BinaryResponder(ROUTE, binary_codec.decode_call(frames)).request()


def _seconds(step: Callable[[], object], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        step()
    return time.perf_counter() - began


app = group()


@command(app, "steps", "quoth bench steps", "quoth bench steps --trial 500ms")
def steps(
    session: WithoutBroker,
    trial: Annotated[
        float,
        typer.Option(
            "--trial",
            metavar="SPAN",
            parser=span("--trial", 0.001, 60),
            help=f"How long a trial takes; a step has nine (default: {format_span(TRIAL_S, short=True)}).",
            show_default=False,
        ),
    ] = TRIAL_S,
    directory: options.Directory = None,
) -> None:
    """Measure each step of a publish and of a fetch by itself.

    Nanoseconds of a call, or of a record: the median of nine trials, and the shortest one in brackets.
    """
    conditions = {"trials": TRIALS, "durability": "written"}
    with options.folder(directory) as made:
        measure(made, Report(session.printer, "steps", conditions, COLUMNS), trial)
