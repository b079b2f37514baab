"""`quoth bench steps`: where the microseconds go, each step of a call done again and again by itself.

The same functions that the client and the broker call, in one thread of this process and with everything in
the processor's caches: what a step costs at the least. Beside them what it costs that there are threads. The
sum is less than what a call takes, since between the steps lie system calls, sockets and other processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from quothbench.figures import Goal, Spread
from quothbench.load import driver
from quothbench.load.driver import VALUE
from quothbench.report import Column, Report, goal_columns
from quothd.requests.responder import BinaryResponder
from quothd.threads.wakeup import Wakeup
from quothlog import Log
from quothwire import batch
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetched, Published

TRIALS = 9
TRIAL_S = 0.05
RECORDS = 100
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
    Column("step", "step", width=46),
    Column("of", "of", width=12),
    Column("nanoseconds", "ns", lambda figure: f"{figure.median:,.0f} ({figure.low:,.0f})", 18),
    *goal_columns(lambda figure: f"{figure:,.0f}", 5),
)


class Bench:
    """Measures one step after the other. directory: where logs are made."""

    def __init__(self, directory: Path, report: Report, trial: float) -> None:
        self._directory = directory
        self._report = report
        self._trial = trial

    def run(self) -> None:
        """Measure everything, a row for each step."""
        self._publish()
        self._fetch()
        self._threads()
        self._records()

    def _publish(self) -> None:
        requests = driver.publishes(TOPIC, [VALUE] * RECORDS, BURST)
        frames = requests[0][1:]
        payloads = [request[-1] for request in requests]
        caller = BinaryResponder(ROUTE, binary_codec.decode_call(frames))
        reply = caller.reply(Published(1, 2, 101, RECORDS, "written", False))[len(ROUTE) :]
        self._time("publish: encode 100 x 100 B", "call", lambda: batch.encode([VALUE] * RECORDS))
        self._time("publish: read the request", "call", lambda: _opened(frames))
        self._time("publish: check the batch", "call", lambda: batch.check(payloads[0]))
        with Log.open(self._directory / "published") as log:
            plain = [batch.encode([VALUE] * RECORDS)] * BURST
            self._time(
                "publish: check, place, write, 16 at once", "call", lambda: log.append_batches(plain), BURST
            )
            self._time("publish: check, place, write, alone", "call", lambda: log.append_batches(plain[:1]))
        self._time(
            "publish: word the reply", "call",
            lambda: caller.reply(Published(1, 2, 101, RECORDS, "written", False)),
        )  # fmt: skip
        self._time("publish: read the reply", "call", lambda: binary_codec.decode_answer(reply))

    def _fetch(self) -> None:
        with Log.open(self._directory / "fetched") as log:
            cursors = [log.append([VALUE] * RECORDS).last for _ in range(200)]
            log.sync()
            frames = driver.fetches(TOPIC, [cursors[0]], RECORDS, 2**20)[0][1:]
            found = log.fetch(cursors[0], RECORDS)
            assert found is not None
            caller = BinaryResponder(ROUTE, binary_codec.decode_call(frames))
            data, log_id = found.data, log.log_id

            def read_on() -> None:
                for cursor in cursors[:-1]:
                    log.fetch(cursor, RECORDS)

            self._time("fetch: read the request", "call", lambda: _opened(frames))
            self._time("fetch: find and read 100 x 100 B", "call", read_on, len(cursors) - 1)
            self._time("fetch: word the reply", "call", lambda: caller.reply(Fetched(1, 2, 3, 0, 4), data))
            self._time("fetch: check and decode 100 x 100 B", "call", lambda: batch.decode(data, log_id))

    def _threads(self) -> None:
        """What it costs to hand something to a thread that waits for it, and to hear of it again."""
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
        wakeup = Wakeup()

        def ring_and_hush() -> None:
            wakeup.ring()
            wakeup.hush()

        self._time("threads: ring and hush, nobody sleeps", "both", ring_and_hush)
        wakeup.close()

    def _records(self) -> None:
        """What a record costs: in a batch of a thousand, and in a log inside a program."""
        raw = batch.encode(MANY)
        self._time("encode 1,000 x 100 B", "record", lambda: batch.encode(MANY), len(MANY), ENCODE_GOAL)
        self._time(
            "check and decode 1,000 x 100 B", "record", lambda: batch.decode(raw), len(MANY), DECODE_GOAL
        )
        with Log.open(self._directory / "embedded") as log:
            self._time("Log.append 1,000 x 20 B", "record", lambda: log.append(SMALL), len(SMALL), WRITE_GOAL)
            log.roll()
            log.append(SMALL)
            first = log.newest - len(SMALL)
            self._time(
                "Log.read 1,000 x 20 B", "record", lambda: list(log.read(first)), len(SMALL), READ_GOAL
            )

    def _time(
        self, name: str, of: str, step: Callable[[], Any], amount: int = 1, goal: Goal = NO_GOAL
    ) -> None:
        """Measure a step that does so many at once."""
        times = max(1, round(self._trial / max(1e-7, _seconds(step, 1))))
        trials = [_seconds(step, times) / times / amount * 1e9 for _ in range(TRIALS)]
        self._report.row(name, of, Spread.of(trials), goal.required, goal.aim)


def _opened(frames: Sequence[bytes]) -> object:
    return BinaryResponder(ROUTE, binary_codec.decode_call(frames)).request()


def _seconds(step: Callable[[], Any], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        step()
    return time.perf_counter() - began
