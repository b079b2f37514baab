"""`quoth bench steps`: the time of each step of a call, repeated by itself.

The same functions that the client and the broker call, in one thread of this process and with everything in
the processor's caches: the least that a step costs. Beside them the cost of threads. The sum is less than the
time of a call, since there are system calls, sockets and other processes between the steps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
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

NO_GOAL = Goal()
ENCODE_GOAL, DECODE_GOAL = Goal(130, 100), Goal(160, 100)
WRITE_GOAL, READ_GOAL = Goal(322, 200), Goal(316, 200)

COLUMNS = (
    ReportColumn("step", "step", width=46),
    ReportColumn("of", "of", width=12),
    ReportColumn("nanoseconds", "ns", lambda figure: f"{figure.median:,.0f} ({figure.low:,.0f})", 18),
    *goal_columns(lambda figure: f"{figure:,.0f}", 5),
)


class StepsBench(NamedTuple):
    """Measures one step after the other. directory: for logs. trial: seconds of a trial."""

    directory: Path
    report: Report
    trial: float

    def run(self) -> None:
        """Measure everything, a row for each step."""
        self._publish()
        self._fetch()
        self._threads()
        self._records()

    def _publish(self) -> None:
        time_call = self._time_call
        requests = driver.publishes(TOPIC, VALUES, BURST)
        frames, payload = requests[0][1:], requests[0][-1]
        responder = BinaryResponder(ROUTE, binary_codec.decode_call(frames))
        published = Published(1, 2, 101, len(VALUES), "written", False)
        reply = responder.reply(published)[len(ROUTE) :]
        time_call("publish: encode 100 x 100 B", lambda: batch.encode(VALUES))
        time_call("publish: read the request", lambda: _request(frames))
        time_call("publish: check the batch", lambda: batch.check(payload))
        with Log.open(self.directory / "published") as log:
            burst = [BATCH] * BURST
            time_call("publish: check, append, write, 16 at once", lambda: log.append_batches(burst), BURST)
            time_call("publish: check, append, write, alone", lambda: log.append_batches([BATCH]))
        time_call("publish: write the reply", lambda: responder.reply(published))
        time_call("publish: read the reply", lambda: binary_codec.decode_answer(reply))

    def _fetch(self) -> None:
        time_call = self._time_call
        with Log.open(self.directory / "fetched") as log:
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

            time_call("fetch: read the request", lambda: _request(frames))
            time_call("fetch: find and read 100 x 100 B", read_on, len(cursors) - 1)
            time_call("fetch: write the reply", lambda: responder.reply(Fetched(1, 2, 3, 0, 4), data))
            time_call("fetch: check and decode 100 x 100 B", lambda: batch.decode(data, log_id))

    def _threads(self) -> None:
        """Measure a hand-over to a waiting thread and back, and a wakeup without a sleeping thread."""
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
            self._time("threads: wake one, be woken by it", "both", there_and_back)
        finally:
            there.put(False)
            thread.join()
        outbox: Outbox[Any] = Outbox()

        def ring_and_hush() -> None:
            outbox.wake()
            outbox.attend(rung=True)

        self._time("threads: ring and hush, no thread sleeps", "both", ring_and_hush)
        outbox.close()

    def _records(self) -> None:
        """Measure the cost of a record: in a batch of a thousand, and in an embedded log."""
        time_record = self._time_record
        raw = batch.encode(MANY)
        time_record("encode 1,000 x 100 B", lambda: batch.encode(MANY), ENCODE_GOAL)
        time_record("check and decode 1,000 x 100 B", lambda: batch.decode(raw), DECODE_GOAL)
        with Log.open(self.directory / "embedded") as log:
            time_record("Log.append 1,000 x 20 B", lambda: log.append(SMALL), WRITE_GOAL)
            log.roll()
            log.append(SMALL)
            first = log.newest - len(SMALL)
            time_record("Log.read 1,000 x 20 B", lambda: list(log.read(first)), READ_GOAL)

    def _time_call(self, name: str, step: Callable[[], Any], amount: int = 1) -> None:
        self._time(name, "call", step, amount)

    def _time_record(self, name: str, step: Callable[[], Any], goal: Goal) -> None:
        self._time(name, "record", step, 1_000, goal)

    def _time(
        self, name: str, of: str, step: Callable[[], Any], amount: int = 1, goal: Goal = NO_GOAL
    ) -> None:
        """Measure a step that processes `amount` calls or records."""
        times = max(1, round(self.trial / max(1e-7, _seconds(step, 1))))
        trials = [_seconds(step, times) / times / amount * 1e9 for _ in range(TRIALS)]
        self.report.row(name, of, Spread.of(trials), *goal)


def _request(frames: Sequence[bytes]) -> object:
    return BinaryResponder(ROUTE, binary_codec.decode_call(frames)).request()


def _seconds(step: Callable[[], Any], times: int) -> float:
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
        StepsBench(made, Report(session.printer, "steps", conditions, COLUMNS), trial).run()
