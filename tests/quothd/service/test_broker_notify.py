"""The reports to a service manager: their order, their thread, and the watchdog."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Peers, code_of
from kit.broker.supervisors import Supervisor, abstract_address
from kit.clocks import HookedClock
from kit.deadlines import DEADLINE_S, eventually
from kit.disk.doubles import FaultyDisk
from quothd import Broker
from quothwire.service.sd_notify import Notifier, from_environment

Embed = Callable[..., Broker]

WATCHDOG_S = 0.4
NEVER_S = 1e9
SILENCE_S = 2 * WATCHDOG_S


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    """Return a service manager that listens at a path."""
    supervisor = Supervisor.below(tmp_path)
    yield supervisor
    supervisor.close()


# -- the daemon -----------------------------------------------------------------------------------------


def test_a_daemon_reports_its_states_in_order(
    start_broker: StartBroker, supervisor: Supervisor, peers: Peers, tmp_path: Path
) -> None:
    """Ready once it serves, reloading and ready again, stopping with the time that it may take."""
    file = tmp_path / "quoth.toml"
    file.write_text("worker_timeout = 0.5\n")
    broker = start_broker("--config", str(file), environment=supervisor.environment(), stop_timeout=7)
    supervisor.wait_for("READY")
    assert supervisor.received[0].fields["STATUS"].startswith("locking ")
    fast = peers.fast(broker)
    fast.publish("t", [b"x"])
    supervisor.wait_for("STATUS", f"serving 1 topic at {broker.url}")
    file.write_text(f"disk_free_min = {2**60}\n")
    before = time.monotonic_ns() // 1_000
    os.kill(broker.pid, signal.SIGHUP)
    reloading = supervisor.wait_for("RELOADING")
    assert before <= int(reloading.fields["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1_000
    supervisor.wait_for("READY")
    eventually(lambda: code_of(fast.answer_to(fast.send_publish("t", [b"x"]))) == "disk_low", "it holds")
    supervisor.wait_for("STATUS", "disk low")
    assert broker.terminate() == 0
    stopping = supervisor.wait_for("STOPPING")
    assert int(stopping.fields["EXTEND_TIMEOUT_USEC"]) > 7_000_000
    states = [name for name in supervisor.names() if name != "STATUS"]
    assert states == ["READY", "RELOADING", "READY", "STOPPING"]
    assert "WATCHDOG" not in supervisor.names()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has abstract sockets")
def test_a_start_that_fails_is_never_ready(start_broker: StartBroker, tmp_path: Path) -> None:
    """Another broker has locked the directory. The manager may listen at an abstract socket."""
    supervisor = Supervisor(abstract_address())
    start_broker(environment=supervisor.environment())
    supervisor.wait_for("READY")
    supervisor.forget()
    second = BrokerProcess(tmp_path / "data", environment=supervisor.environment())
    try:
        second.launch()
        assert second.wait() == 3
        assert not [report for report in supervisor.listen(0.1) if "READY" in report.fields]
    finally:
        second.close()
        supervisor.close()


def test_the_watchdog_is_notified_while_the_process_runs(
    start_broker: StartBroker, supervisor: Supervisor, peers: Peers
) -> None:
    """Twice in its time, without any other work. The broker serves and stops after its manager is gone."""
    allowed = 2 * WATCHDOG_S
    settings = {"check_interval": NEVER_S, "scrub_interval": 0}
    broker = start_broker(environment=supervisor.environment(allowed), **settings)
    fed = [supervisor.wait_for("WATCHDOG").at for _ in range(4)]
    gaps = [later - earlier for earlier, later in pairwise(fed)]
    assert sorted(gaps)[len(gaps) // 2] < 0.75 * allowed, gaps
    broker.freeze()
    supervisor.forget()
    assert supervisor.listen(1.5 * allowed) == []
    os.kill(broker.pid, signal.SIGCONT)
    supervisor.wait_for("WATCHDOG")
    supervisor.close()
    os.unlink(supervisor.address)
    fast = peers.fast(broker)
    fast.publish("t", [b"x"])
    assert fast.fetch("t").values == [b"x"]
    assert broker.terminate() == 0


def test_the_watchdog_of_another_process_and_an_address_that_is_no_unix_socket_get_no_report() -> None:
    """WATCHDOG_PID names the process; its children inherit the variables."""
    environment = {"NOTIFY_SOCKET": "/run/nothing", "WATCHDOG_USEC": "1000000"}
    for pid, fed in ((os.getpid(), True), (os.getppid(), False)):
        notifier = from_environment({**environment, "WATCHDOG_PID": str(pid)})
        assert (notifier._feed_every > 0) is fed
        notifier.close()
    for address in ("", "tcp://127.0.0.1:1", "vsock:2:1"):
        assert from_environment({"NOTIFY_SOCKET": address}).tick(0.0, lambda: "") == math.inf


# -- the front end, in this process -----------------------------------------------------------------------


def test_an_embedded_broker_reads_no_environment_variables(supervisor: Supervisor, tmp_path: Path) -> None:
    """Neither those of a service manager, which has started the program, nor those of the daemon."""
    code = """
import sys
from quothd import Broker
with Broker(sys.argv[1], host="127.0.0.1") as broker:
    print(broker.config.auto_create)
"""
    variables = {**os.environ, **supervisor.environment(WATCHDOG_S), "QUOTH_AUTO_CREATE": "0"}
    command = [sys.executable, "-c", code, str(tmp_path / "data")]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True\n"
    assert supervisor.listen(0.1) == []


@pytest.fixture
def feeding(supervisor: Supervisor) -> Iterator[Notifier]:
    """Return a notifier that feeds the watchdog."""
    notifier = Notifier(supervisor.address, WATCHDOG_S)
    yield notifier
    notifier.close()


def test_the_status_counts_the_topics_that_are_opened_in_the_background(
    embed: Embed, supervisor: Supervisor, feeding: Notifier, disk: FaultyDisk, peers: Peers
) -> None:
    """The broker is ready before."""
    first = embed()
    fast = peers.fast(first)
    for name in ("t1", "t2", "t3"):
        fast.publish(name, [b"x"])
    first.stop()
    disk.stall("t", "open")
    second = embed(notifier=feeding)
    supervisor.wait_for("STATUS", f"serving 3 topics at {second.url}, opening 1 of 3")
    disk.heal()
    report = supervisor.wait_for("STATUS", "serving 3 topics")
    while "opening" in report.fields["STATUS"]:
        report = supervisor.wait_for("STATUS", "serving 3 topics")


def test_a_stalled_front_end_does_not_notify_the_watchdog(
    embed: Embed, supervisor: Supervisor, feeding: Notifier
) -> None:
    """No other thread of the process does it instead."""
    clock = HookedClock()
    go_on, stands = threading.Event(), threading.Event()

    def stand_still(thread: str) -> None:
        if thread == "quoth-front-end":
            stands.set()
            assert go_on.wait(DEADLINE_S)

    embed(notifier=feeding, clock=clock)
    supervisor.wait_for("WATCHDOG")
    clock.hook = stand_still
    try:
        assert stands.wait(DEADLINE_S)
        supervisor.forget()
        assert supervisor.listen(SILENCE_S) == []
    finally:
        go_on.set()
    supervisor.wait_for("WATCHDOG")


def test_the_thread_that_takes_over_the_front_end_notifies_the_watchdog(
    embed: Embed, supervisor: Supervisor, feeding: Notifier, peers: Peers, disk: FaultyDisk
) -> None:
    """A disk that stalls one thread is no reason to restart the broker."""
    fast = peers.fast(embed(notifier=feeding, worker_timeout=60.0))
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
