"""Ten times the history makes a restart take less than half as long again."""

from __future__ import annotations

import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Peers, replied
from kit.disk.topics import append_to, make_topic, share
from kit.scale import times

MIB = 2**20
LITTLE = times(16, 1_024) * MIB
MUCH = 10 * LITTLE
SEGMENT_BYTES = times(4, 16) * MIB
HISTORY_BATCH_BYTES = 16 * 2**10
"""Small enough that a walk from header to header over the history would show."""
TAILS = {"large batches": (times(2, 8) * MIB, 256 * 2**10), "small batches": (2 * MIB, 100)}
CASES = [
    (signal.SIGTERM, "large batches"),
    (signal.SIGKILL, "small batches"),
    (signal.SIGTERM, "small batches"),
    (signal.SIGKILL, "large batches"),
][: times(2, 4)]
PAIRS = times(3, 9)
FACTOR = 1.5
MEASUREMENTS = 3
"""Other programs can only spoil one, so the best counts."""

MakeData = Callable[[int], Path]


@pytest.fixture(scope="module")
def make_history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeData]:
    """Makes a data directory with a topic of so many bytes, all in sealed segments; one for each size."""
    made: dict[int, Path] = {}

    def make(size: int) -> Path:
        if size not in made:
            made[size] = tmp_path_factory.mktemp("history")
            append_to(make_topic(made[size], "large", SEGMENT_BYTES), size, HISTORY_BATCH_BYTES, seal=True)
            os.sync()  # or the kernel would do it while times are taken
        return made[size]

    yield make
    for path in made.values():
        shutil.rmtree(path)


def with_tail(history: Path, at: Path, tail: str, *, close: bool) -> Path:
    """A data directory that shares the sealed segments of a history and has an active one of its own."""
    share(history, at)
    (folder,) = (at / "topics").iterdir()
    size, batch_bytes = TAILS[tail]
    append_to(folder, size, batch_bytes, close=close)
    return at


def time_to_answer(broker: BrokerProcess, peers: Peers, number: int) -> float:
    """Start it, publish, read the oldest record, and end it: the seconds until both were answered."""
    began = time.monotonic()
    broker.restart()
    with peers.fast(broker) as fast:
        published = fast.send_publish("large", [b"x"])
        read = fast.send_fetch("large", 0, bytes_max=1)
        for answer in fast.answers_to([published, read]):
            replied(answer)
        took = time.monotonic() - began
    broker.terminate(number)
    return took


@pytest.mark.alone
@pytest.mark.timeout(times(120, 1_200))
@pytest.mark.parametrize(("number", "tail"), CASES, ids=[f"{one[0].name}-{one[1]}" for one in CASES])
def test_ten_times_the_history_delays_the_first_replies_little(
    make_history: MakeData, start_broker: StartBroker, peers: Peers, tmp_path: Path, number: int, tail: str
) -> None:
    """From the start of the process until a publish and a read are answered, with the same active segment."""
    brokers = []
    for size in (LITTLE, MUCH):
        data = with_tail(make_history(size), tmp_path / str(size), tail, close=number == signal.SIGTERM)
        brokers.append(start_broker(directory=data, worker_timeout=600.0))
        brokers[-1].terminate(number)
    os.sync()
    ratios: list[float] = []
    while len(ratios) < MEASUREMENTS and min(ratios, default=math.inf) > FACTOR:
        pairs = [[time_to_answer(broker, peers, number) for broker in brokers] for _ in range(PAIRS)]
        ratios.append(median(much / little for little, much in pairs))
        print(f"seconds with little and much: {pairs}; median of the ratios {ratios[-1]:.2f}")
    for path in (tmp_path / str(size) for size in (LITTLE, MUCH)):
        shutil.rmtree(path)
    assert min(ratios) <= FACTOR
