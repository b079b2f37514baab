"""What a service manager is told: in which order, and by whom; a front end that stands still says nothing."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Peers, code_of
from kit.broker.supervisors import Supervisor, abstract_address
from kit.deadlines import DEADLINE_S, eventually
from kit.disk.doubles import FaultyDisk
from quothd import Broker
from quothd.frontend.dispatcher import Dispatcher
from quothd.service.sd_notify import Notifier, from_environment

WATCHDOG_S = 0.4
NEVER_S = 1e9
SILENCE_S = 4 * WATCHDOG_S


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    """Listens at a path."""
    supervisor = Supervisor.below(tmp_path)
    yield supervisor
    supervisor.close()


# -- the daemon -----------------------------------------------------------------------------------------


def test_the_order_of_a_whole_life(
    start_broker: StartBroker, supervisor: Supervisor, peers: Peers, tmp_path: Path
) -> None:
    """Ready once it serves, reloading and ready again, stopping with the time that it may take."""
    file = tmp_path / "quoth.toml"
    file.write_text("worker_timeout = 0.5\n")
    broker = start_broker("--config", str(file), environment=supervisor.environment(), stop_timeout=7)
    supervisor.wait_for("READY")
    peers.fast(broker).publish("t", [b"x"])
    supervisor.wait_for("STATUS", f"serving 1 topic at {broker.url}")
    before = time.monotonic_ns() // 1_000
    os.kill(broker.pid, signal.SIGHUP)
    reloading = supervisor.wait_for("RELOADING")
    assert before <= int(reloading.fields["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1_000
    supervisor.wait_for("READY")
    assert broker.terminate() == 0
    stopping = supervisor.wait_for("STOPPING")
    assert int(stopping.fields["EXTEND_TIMEOUT_USEC"]) > 7_000_000
    states = [name for name in supervisor.names() if name != "STATUS"]
    assert states == ["READY", "RELOADING", "READY", "STOPPING"]
    assert "WATCHDOG" not in supervisor.names()


def test_a_broker_that_is_ready_answers(
    start_broker: StartBroker, supervisor: Supervisor, peers: Peers
) -> None:
    """Ready means locked, listed and bound: the first request is answered."""
    broker = start_broker(environment=supervisor.environment())
    supervisor.wait_for("READY")
    assert supervisor.told[0].fields["STATUS"].startswith("locking ")
    assert peers.simple(broker).topics() == []


def test_a_start_that_fails_is_never_ready(
    start_broker: StartBroker, supervisor: Supervisor, tmp_path: Path
) -> None:
    """Somebody else has the directory."""
    start_broker()
    second = BrokerProcess(tmp_path / "data", environment=supervisor.environment())
    try:
        second.launch()
        assert second.wait() == 3
    finally:
        second.close()
    assert [list(told.fields) for told in supervisor.listen(0.1)] == [["STATUS"]]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has abstract sockets")
def test_an_abstract_socket_is_told_as_well(start_broker: StartBroker) -> None:
    supervisor = Supervisor(abstract_address())
    try:
        start_broker(environment=supervisor.environment())
        supervisor.wait_for("READY")
    finally:
        supervisor.close()


def test_an_idle_broker_feeds_the_watchdog(start_broker: StartBroker, supervisor: Supervisor) -> None:
    """Though nothing else makes it look up: at half of the time that it has."""
    allowed = 3 * WATCHDOG_S
    start_broker(environment=supervisor.environment(allowed), check_interval=NEVER_S, scrub_interval=0)
    supervisor.wait_for("READY")
    fed = [supervisor.wait_for("WATCHDOG").at for _ in range(8)]
    gaps = [later - earlier for earlier, later in pairwise(fed)]
    assert sorted(gaps)[len(gaps) // 2] < 0.75 * allowed, gaps


def test_a_process_that_stands_still_feeds_it_no_more(
    start_broker: StartBroker, supervisor: Supervisor
) -> None:
    """Stopped as a whole, and it goes on when the process does."""
    broker = start_broker(environment=supervisor.environment(WATCHDOG_S))
    supervisor.wait_for("WATCHDOG")
    broker.freeze()
    supervisor.forget()
    assert supervisor.listen(SILENCE_S) == []
    os.kill(broker.pid, signal.SIGCONT)
    supervisor.wait_for("WATCHDOG")


def test_a_watchdog_that_is_another_process_s_is_not_fed() -> None:
    """WATCHDOG_PID names who is meant; a child of his finds the variables, too."""
    environment = {"NOTIFY_SOCKET": "/run/nobody", "WATCHDOG_USEC": "1000000"}
    for pid, fed in ((os.getpid(), True), (os.getppid(), False)):
        notifier = from_environment({**environment, "WATCHDOG_PID": str(pid)})
        assert (notifier._feed_every > 0) is fed
        notifier.close()


@pytest.mark.parametrize("address", ["", "tcp://127.0.0.1:1", "vsock:2:1"])
def test_an_address_that_is_no_unix_socket_is_nobody(address: str) -> None:
    notifier = from_environment({"NOTIFY_SOCKET": address})
    assert notifier.tick(0.0, lambda: "") is None


def test_a_manager_that_is_gone_harms_nobody(
    start_broker: StartBroker, supervisor: Supervisor, peers: Peers
) -> None:
    broker = start_broker(environment=supervisor.environment(WATCHDOG_S))
    supervisor.wait_for("WATCHDOG")
    supervisor.close()
    os.unlink(supervisor.address)
    fast = peers.fast(broker)
    fast.publish("t", [b"x"])
    assert fast.fetch("t").values == [b"x"]
    assert broker.terminate() == 0


def test_a_disk_that_is_low_is_told(start_broker: StartBroker, supervisor: Supervisor, peers: Peers) -> None:
    broker = start_broker(environment=supervisor.environment(), disk_free_min=2**60)
    fast = peers.fast(broker)
    (answer,) = fast.answers_to([fast.send_publish("t", [b"x"])])
    assert code_of(answer) == "disk_low"
    supervisor.wait_for("STATUS", "disk low")


# -- the front end, in this process -----------------------------------------------------------------------


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    """The disk of `embedded`."""
    disk = FaultyDisk()
    yield disk
    disk.heal()


@pytest.fixture
def embedded(tmp_path: Path, supervisor: Supervisor, disk: FaultyDisk) -> Iterator[Broker]:
    """A broker in this process whose front end feeds the watchdog."""
    notifier = Notifier(supervisor.address, WATCHDOG_S)
    about: dict[str, Any] = {"host": "127.0.0.1", "worker_timeout": 60.0}
    with Broker(tmp_path / "data", notifier=notifier, filesystem=disk, **about) as broker:
        yield broker
    notifier.close()


def test_a_broker_in_a_program_tells_nobody(
    tmp_path: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, peers: Peers
) -> None:
    """It is the program that the service manager has started."""
    for name, value in supervisor.environment(WATCHDOG_S).items():
        monkeypatch.setenv(name, value)
    with Broker(tmp_path / "data", host="127.0.0.1") as broker:
        peers.fast(broker).publish("t", [b"x"])
    assert supervisor.listen(0.1) == []


def test_topics_that_nobody_has_asked_for_yet_are_told_while_they_are_opened(
    tmp_path: Path, supervisor: Supervisor, disk: FaultyDisk, peers: Peers
) -> None:
    """It is ready before, and says how far it is."""
    with Broker(tmp_path / "data", host="127.0.0.1") as broker:
        fast = peers.fast(broker)
        for name in "abc":
            fast.publish(name, [b"x"])
    disk.stall("", "open")
    notifier = Notifier(supervisor.address)
    with Broker(tmp_path / "data", host="127.0.0.1", notifier=notifier, filesystem=disk) as broker:
        supervisor.wait_for("STATUS", f"serving 3 topics at {broker.url}, opening 1 of 3")
        disk.heal()
        told = supervisor.wait_for("STATUS", "serving 3 topics")
        while "opening" in told.fields["STATUS"]:
            told = supervisor.wait_for("STATUS", "serving 3 topics")
    notifier.close()


def test_a_loop_that_stands_still_feeds_it_no_more(
    embedded: Broker, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else lives in the process: no other thread does it."""
    go_on, stands = threading.Event(), threading.Event()
    real = Dispatcher.tick

    def tick(dispatcher: Dispatcher, now: float) -> float | None:
        stands.set()
        assert go_on.wait(DEADLINE_S)
        return real(dispatcher, now)

    supervisor.wait_for("WATCHDOG")
    monkeypatch.setattr(Dispatcher, "tick", tick)
    try:
        assert stands.wait(DEADLINE_S)
        supervisor.forget()
        assert supervisor.listen(SILENCE_S) == []
    finally:
        go_on.set()
    supervisor.wait_for("WATCHDOG")


def test_the_thread_that_takes_over_the_front_end_feeds_it(
    embedded: Broker, supervisor: Supervisor, peers: Peers, disk: FaultyDisk
) -> None:
    """A disk that stalls one thread is no reason to restart the broker."""
    fast = peers.fast(embedded)
    fast.publish("t", [b"x"])
    eventually(lambda: fast.status(limit=0).counters["syncs"], "its own thread has nothing to do")
    disk.stall("t")
    asked = fast.send_publish("t", [b"y"])
    assert disk.has_stalled.wait(DEADLINE_S)
    supervisor.forget()
    for _ in range(4):
        supervisor.wait_for("WATCHDOG")
    disk.heal()
    assert [code_of(answer) for answer in fast.answers_to([asked])] == [""]
