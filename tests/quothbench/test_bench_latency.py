"""`quoth bench latency`: calls alone, calls on a schedule, records from publish to tail."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest
import zmq

import quoth
from kit.broker.brokers import BrokerProcess
from kit.deadlines import DEADLINE_S
from kit.machine.commands import Command
from quothbench.instruments.latency import COLUMNS
from quothbench.load import driver, schedule
from quothbench.report import Report
from quothcli.printing.formats import Format
from quothcli.printing.output import Printer
from quothwire.errors import Unavailable, error
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Operation, Ping, Pong

SHORT = ("--calls", "20", "--rate", "100", "--rate", "400", "--tail-rate", "100", "--seconds", "100ms")
QUANTILES = ("p50", "p90", "p99", "p99.9", "max")
ALONE = ["publish of 1 x 100 B", "publish of 1 x 100 B", "fetch of 1 x 100 B", "ping"]
SCHEDULED = ["publish of 1 x 100 B, scheduled"] * 4
TAILED = [
    row
    for way in ("announcement, fetch", "parked fetch", "client.tail") * 2
    for row in (f"to tail, {way}", "  publish", "  ping")
]


@pytest.fixture
def answerer() -> Iterator[zmq.Socket[bytes]]:
    """A ROUTER that answers when a test says so."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.set(zmq.LINGER, 0)
        router.set(zmq.SNDHWM, 0)  # or it drops in silence what a client does not take at once
        router.set(zmq.RCVTIMEO, int(DEADLINE_S * 1_000))
        router.bind_to_random_port("tcp://127.0.0.1")
        yield router


def answer(router: zmq.Socket[bytes], frames: list[bytes]) -> None:
    """Answer a ping."""
    client, empty, *request = frames
    number = binary_codec.correlation_of(request)
    router.send_multipart([client, empty, *binary_codec.encode_reply(Operation.PING, number, Pong(1), None)])


def test_a_broker_that_runs_is_left_as_it_was(alone: Command, broker: BrokerProcess) -> None:
    told = alone("bench", "latency", *SHORT, "--url", broker.url, "--format", "json")
    assert (told.status, told.err) == (0, "")
    conditions, *rows = told.objects
    assert conditions["broker"] == broker.url
    assert [row["figure"] for row in rows] == ALONE + SCHEDULED + TAILED
    with quoth.connect(broker.url) as client:
        assert client.topics() == []


def test_every_row_is_there_and_its_figures_are_sane(alone: Command, tmp_path: Path) -> None:
    told = alone("bench", "latency", *SHORT, "--dir", str(tmp_path), "--format", "json")
    assert told.status == 0, told.err
    conditions, *rows = told.objects
    assert conditions["benchmark"] == "latency"
    assert conditions["seconds"] == 0.1
    assert [row["figure"] for row in rows] == ALONE + SCHEDULED + TAILED
    for row in rows:
        quantiles = [row[f"{name}_seconds"] for name in QUANTILES]
        assert quantiles[0] > 0, row
        assert quantiles == sorted(quantiles), row
        assert quantiles[-1] < 10, row
    assert list(tmp_path.iterdir()) == []
    _check_alone(rows[: len(ALONE)])
    _check_scheduled(rows[len(ALONE) :][: len(SCHEDULED)])
    _check_tailed(rows[-len(TAILED) :])


def _check_alone(rows: list[dict[str, Any]]) -> None:
    assert [row["durability"] for row in rows] == ["written", "synced", None, None]
    assert {row["calls"] for row in rows} == {20}
    assert {row["rate"] for row in rows} == {None}


def _check_scheduled(rows: list[dict[str, Any]]) -> None:
    assert [(row["durability"], row["rate"], row["calls"]) for row in rows] == [
        (durability, rate, rate / 10) for durability in ("written", "synced") for rate in (100, 400)
    ]
    for row in rows:
        assert 0 <= row["late"] <= row["calls"], row
        assert row["held"] == 0, row


def _check_tailed(rows: list[dict[str, Any]]) -> None:
    assert [row["rate"] for row in rows] == [20] * 9 + [100] * 9
    for tailed, published, pinged in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        assert tailed["calls"] == published["calls"] == pinged["calls"] == tailed["rate"] / 10
        assert tailed["ratio"] > 0
        assert (tailed["required"], tailed["aim"]) == ((3, 2) if tailed["rate"] == 20 else (None, None))


def test_people_see_what_there_is_of_each_row(capfd: pytest.CaptureFixture[str]) -> None:
    report = Report(Printer(Format.TEXT), "latency", {"seconds": 5}, COLUMNS)
    took = (0.0001, 0.0002, 0.0015, 0.002, 0.25)
    report.row("ping", None, None, 2_000, *took, None, None, None, None, None)
    report.row("to tail, parked fetch", "written", 20.0, 100, *took, None, None, 2.5, 3.0, 2.0)
    lines = capfd.readouterr().out.splitlines()
    head, alone, tailed = lines[lines.index("") + 1 :]
    assert head.split() == [
        "figure", "level", "rate/s", "calls", *QUANTILES, "late", "held", "ratio", "required", "aim",
    ]  # fmt: skip
    told = ["100", "us", "200", "us", "1.50", "ms", "2.00", "ms", "250.00", "ms", "-", "-"]
    assert alone.split() == ["ping", "-", "-", "2,000", *told, "-", "-", "-"]
    assert tailed.split()[4:] == ["written", "20", "100", *told, "2.50", "3.00", "2.00"]


@pytest.mark.parametrize(
    ("typed", "status", "code"),
    [
        (("--rate", "0"), 2, "usage"),
        (("--dir", "no/such/directory"), 3, "not_found"),
        (("--records", "1000", "--size", "10000"), 1, "too_large"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_mistakes_are_told(alone: Command, typed: tuple[str, ...], status: int, code: str) -> None:
    told = alone("bench", "latency", *typed)
    assert told.status == status
    assert told.err.startswith(f"quoth: {code}: ")
    assert "\nhint: " in told.err
    assert told.out == b""


def test_a_stall_counts_for_every_call_that_it_delays(answerer: zmq.Socket[bytes]) -> None:
    """Nothing is answered before the last call was sent, and they are sent all the same."""
    calls, rate = 20, 1_000.0
    with _kept(answerer, calls, rate) as kept:
        for request in [answerer.recv_multipart() for _ in range(calls)]:
            answer(answerer, request)
    took = kept.result().took
    assert len(took) == calls
    assert all(one >= (calls - 1 - number) / rate for number, one in enumerate(took)), took
    assert kept.result().held == 0


def test_a_bound_on_the_calls_that_are_on_their_way_is_told(answerer: zmq.Socket[bytes]) -> None:
    bound = schedule.ON_THEIR_WAY_MAX
    is_held = Event()
    with _kept(answerer, bound + 1, 1e6, is_held) as kept:
        requests = [answerer.recv_multipart() for _ in range(bound)]
        assert is_held.wait(DEADLINE_S), "it sends one more, or does not wait"
        for request in requests:
            answer(answerer, request)
        answer(answerer, answerer.recv_multipart())
    assert kept.result().held == 1
    assert kept.result().late >= 1
    assert len(kept.result().took) == bound + 1


def test_what_a_broker_refuses_is_raised(answerer: zmq.Socket[bytes]) -> None:
    with _kept(answerer, 1, 100) as kept:
        client, empty, *request = answerer.recv_multipart()
        problem = error("busy", "later")
        frames = binary_codec.encode_error(Operation.PING, binary_codec.correlation_of(request), problem)
        answerer.send_multipart([client, empty, *frames])
    with pytest.raises(Unavailable, match="later"):
        kept.result()


def test_calls_are_not_sent_before_they_are_due(broker: BrokerProcess) -> None:
    calls, rate = 25, 500.0
    with driver.dealer(broker.url) as socket:
        began = time.perf_counter()
        kept = schedule.keep(socket, driver.requests(Ping(), "", calls), rate)
    assert time.perf_counter() - began >= (calls - 1) / rate
    assert len(kept.took) == calls
    assert min(kept.took) > 0


class Waiting:
    """A socket that says when an answer is waited for that has to come before anything else is sent."""

    def __init__(self, socket: zmq.Socket[bytes], waits: Event) -> None:
        self._socket = socket
        self._waits = waits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def poll(self, milliseconds: int) -> int:
        """Wait for an answer."""
        self._waits.set()
        return self._socket.poll(milliseconds)


@contextmanager
def _kept(
    answerer: zmq.Socket[bytes], calls: int, rate: float, waits: Event | None = None
) -> Iterator[Future[schedule.Kept]]:
    """A schedule of pings that is kept by another thread meanwhile. waits: set once it waits for answers."""
    url = answerer.get_string(zmq.LAST_ENDPOINT)

    def keep() -> schedule.Kept:
        with driver.dealer(url) as socket:
            watched = cast("zmq.Socket[bytes]", Waiting(socket, waits or Event()))
            return schedule.keep(watched, driver.requests(Ping(), "", calls), rate)

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(keep)
