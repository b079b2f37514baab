"""Tasks of a job during an outage of the broker: each process waits for it once."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.spark.workers import LocalWorkers
from quoth.spark import connections, workers
from quoth.spark.workers import GIVEN_UP_S, PAUSE_MAX_S, SparkWorkers, perform, until_next_look
from quothwire.errors import CODES, Disconnected, RequestError, Unavailable, error

WAIT_S = 1.0
"""Long enough to notice that a broker has gone, and to find one that is there."""
PARTS = 12


@pytest.fixture
def broker(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """One for the test, which kills it."""
    return start_broker()


def asks(url: str, directory: Path, part: int, wait: float = WAIT_S) -> int:
    """The work of a task: it reports its process and the time, and calls the broker."""
    (directory / f"part {part}").write_text(f"{os.getpid()} {time.monotonic()}")
    connections.client(url, wait).ping()
    return 2 * part


def test_broker_without_an_answer_is_not_awaited_again_for_a_while(
    broker: BrokerProcess,
    start_broker: Callable[..., BrokerProcess],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "GIVEN_UP_S", 60.0)
    work, patient = (partial(asks, broker.url, tmp_path, wait=seconds) for seconds in (WAIT_S, DEADLINE_S))
    assert perform(LocalWorkers(), patient, range(3), broker.url) == [0, 2, 4]
    broker.kill()
    for part in range(3, 3 + PARTS, 4):
        with pytest.raises(Disconnected, match=r"no broker answers|no answer from"):
            perform(LocalWorkers(), work, range(part, part + 4), broker.url)
    asked = {f"part {part}" for part in range(4)}
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith("part")} == asked
    other = start_broker(directory=tmp_path / "other")
    assert perform(LocalWorkers(), partial(asks, other.url, tmp_path, wait=DEADLINE_S), [1], other.url) == [2]
    broker.restart()
    monkeypatch.setattr(workers, "GIVEN_UP_S", 0.1)
    with pytest.raises(Disconnected):
        perform(LocalWorkers(), work, [1, 2], broker.url)  # prolongs the time, now by less

    def is_asked_again() -> bool:
        pause(0.2)
        with suppress(Disconnected):
            return perform(LocalWorkers(), work, [1, 2], broker.url) == [2, 4]
        return False

    eventually(is_asked_again, "the broker is asked again")


def test_temporary_errors_of_the_broker_are_retried_and_others_are_not(
    broker: BrokerProcess,
) -> None:
    tried: list[int] = []

    def work(part: int) -> int:
        tried.append(part)
        if part == 1 and tried.count(1) < 3:
            raise error("busy", "a queue is full")
        return part

    assert perform(LocalWorkers(), work, range(3), broker.url) == [0, 1, 2]
    assert tried == [0, 1, 2, 1, 1]


def test_a_job_looks_again_at_its_interval_or_soon_after_an_outage_or_an_overload() -> None:
    """However long its interval is: a broker that has just returned may be opening its topics."""
    now = time.monotonic()
    assert 1_800.0 < until_next_look(now, 3_600.0, None) <= 3_600.0
    assert until_next_look(now - 60.0, 10.0, None) == 0.0
    soon = {"disconnected", "timed_out", "busy", "recovering", "stopping"}
    codes = [code for code, row in CODES.items() if row.error in (Disconnected, Unavailable)]
    for code in (*codes, "locked"):
        rest = until_next_look(time.monotonic(), 600.0, error(code, "of the test"))
        low, high = (0.0, PAUSE_MAX_S) if code in soon else (300.0, 600.0)
        assert low < rest <= high, code
    assert PAUSE_MAX_S <= 1.0


def test_each_worker_of_spark_waits_once(
    spark: Any, by_value: None, broker: BrokerProcess, tmp_path: Path
) -> None:
    broker.kill()
    with pytest.raises(Disconnected, match="no broker answers"):
        perform(SparkWorkers(spark), partial(asks, broker.url, tmp_path), range(PARTS), broker.url)
    waited: defaultdict[str, list[float]] = defaultdict(list)
    for path in tmp_path.glob("part *"):
        process, began = path.read_text().split()
        waited[process].append(float(began))
    assert 0 < sum(map(len, waited.values())) < PARTS
    for times in waited.values():  # only one that had no task for so long waits again
        assert all(later - earlier > GIVEN_UP_S for earlier, later in pairwise(sorted(times)))


def refuses(part: int) -> int:
    """The work of a task that meets an error of the file system, or of Quoth."""
    if part == 0:
        raise OSError(errno.EROFS, "Read-only file system", "/mnt/archive")
    raise error("bad_request", "it cannot be", "do something else")


def test_an_error_of_a_task_names_its_host(spark: Any, by_value: None) -> None:
    with pytest.raises(OSError, match="Read-only file system") as met:
        perform(SparkWorkers(spark), refuses, [0])
    assert (met.value.errno, met.value.filename) == (errno.EROFS, "/mnt/archive")
    assert met.value.strerror == f"Read-only file system (host {socket.gethostname()})"
    with pytest.raises(RequestError) as refused:
        perform(SparkWorkers(spark), refuses, [1])
    assert refused.value.text == f"it cannot be (host {socket.gethostname()})"
    assert (refused.value.code, refused.value.hint) == ("bad_request", "do something else")
    with pytest.raises(RequestError) as here:
        perform(LocalWorkers(), refuses, [1])
    assert here.value.text == "it cannot be"
