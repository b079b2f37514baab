"""Starts and stops: those that fail say why; acknowledged records are stored, all requests answered."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker, behind
from kit.broker.peers import FastPeer, Peers, code_of, found_in, replied
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.disk.doubles import FaultyDisk
from kit.machine.ports import free_port
from kit.scale import times
from quothd import Broker
from quothd.main import run
from quothd.threads.outbox import Outbox
from quothlog import Log
from quothwire.errors import Conflict, Disconnected
from quothwire.service.exit_status import ExitStatus

WRONG, CANNOT = 2, 3
"""Exit statuses: the configuration is wrong; it is right, but the broker cannot start."""

Refuse = Callable[..., str]


# -- the system below it -------------------------------------------------------------------------------------

BOOT_ID = "/proc/sys/kernel/random/boot_id"
WITHOUT_BOOT_ID = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc/sys && exec "$@"', "sh")
"""Like ProcSubset=pid in a unit, which hides the same."""


def may_mount() -> bool:
    """True if this user can mount something in a namespace of its own."""
    return shutil.which("unshare") is not None and subprocess.run([*WITHOUT_BOOT_ID, "true"]).returncode == 0


needs_mounts = pytest.mark.skipif(not may_mount(), reason="this user may mount nothing")


@needs_mounts
def test_a_broker_without_a_boot_id_ends_before_it_is_ready(refuse: Refuse, tmp_path: Path) -> None:
    """Each publish to it would fail."""
    said = refuse(CANNOT, prefix=WITHOUT_BOOT_ID)
    assert f"unusable_system: {BOOT_ID}: No such file or directory" in said
    assert "ProcSubset=all" in said, "what to do"
    assert not (tmp_path / "data").exists()


@needs_mounts
def test_a_log_is_verified_without_a_boot_id(tmp_path: Path) -> None:
    """Only writers need it: they get the error of the broker. A cut batch at the end is torn."""
    done = subprocess.run(
        [*WITHOUT_BOOT_ID, sys.executable, "-c", "from quothlog import Log; Log.open('no log')"],
        capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    assert f"BrokerFailure: unusable_system: {BOOT_ID}: No such file" in done.stderr
    assert list(tmp_path.iterdir()) == []
    with Log.open(tmp_path / "log") as log:
        log.append([b"x" * 100] * 10)
    (path,) = (tmp_path / "log").glob("*.seg")
    path.with_suffix(".idx").unlink()
    with path.open("ab") as file:
        file.write(path.read_bytes()[-200:])
    done = subprocess.run(
        [*WITHOUT_BOOT_ID, Path(sys.executable).with_name("quoth"), "log", "verify", tmp_path / "log"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, "unusable_system" in done.stderr) == (0, False), done.stderr
    assert "10" in done.stdout


# -- configuration --------------------------------------------------------------------------------------


def test_a_wrong_option_is_refused_with_its_name_and_value(refuse: Refuse) -> None:
    assert "did you mean --worker-timeout?" in refuse(WRONG, "--worker-timout", "5")
    said = refuse(WRONG, "--port", "70000")
    assert all(words in said for words in ("--port: port", "70000"))


def test_a_refused_configuration_changes_nothing_in_its_process(tmp_path: Path) -> None:
    """A program may call the command within itself, as tests do."""
    frozen, before = gc.get_freeze_count(), ([*gc.callbacks], sys.getswitchinterval())
    assert run({}, tmp_path / "missing.toml") == ExitStatus.WRONG
    assert ([*gc.callbacks], sys.getswitchinterval()) == before
    assert gc.get_freeze_count() <= frozen


def test_a_port_has_one_owner(refuse: Refuse, start_broker: StartBroker, tmp_path: Path) -> None:
    """As has the port for announcements. The refused broker leaves its directory unlocked."""
    file = tmp_path / "quoth.toml"
    file.write_text("durability = 'synced'\n")
    port = free_port()  # the neighbour of a port that the system gives may be taken
    with closing(socket.create_server(("127.0.0.1", port + 1))):
        assert f":{port + 1}" in refuse(CANNOT, port=port)
    broker = start_broker("--config", str(file), port=port)
    said = refuse(CANNOT, directory=tmp_path / "other", port=port)
    assert f":{port}" in said
    assert "is another broker running there?" in said
    other = start_broker(directory=tmp_path / "other", sync_interval=0.02)
    for one, number, worth in (
        (broker, signal.SIGTERM, "survives a power cut"),
        (other, signal.SIGINT, "may take the last 20 milliseconds"),
    ):
        assert str(one.directory) in one.wait_for("serving")
        assert worth in one.wait_for("acknowledged means")
        assert one.terminate(number) == 0
        assert "unlocked" in one.stderr


# -- stops --------------------------------------------------------------------------------------------------

StartBroken = Callable[..., BrokerProcess]


class Load:
    """The replies to publishers; each is a thread that publishes until the broker has ended."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.codes: set[str] = set()
        self.acknowledged: dict[str, dict[int, bytes]] = {}

    def publish(self, fast: FastPeer, topic: str) -> None:
        """Publish numbers to a topic, many at once, and keep what is acknowledged."""
        stored = self.acknowledged.setdefault(topic, {})
        sent: dict[int, bytes] = {}
        number = 0
        while not self.over.is_set():
            while len(sent) < 20:
                number += 1
                sent[fast.send_publish(topic, [b"%d" % number])] = b"%d" % number
            if fast.is_silent(0.05):
                continue
            answer = fast.receive()
            value = sent.pop(answer.correlation)
            self.codes.add(code_of(answer))
            if not code_of(answer):
                stored[replied(answer).first] = value


@pytest.mark.parametrize(("number", "durability"), [(signal.SIGTERM, "written"), (signal.SIGINT, "synced")])
def test_a_stop_under_load_loses_nothing_that_was_acknowledged(
    start_broker: StartBroker, peers: Peers, number: int, durability: str
) -> None:
    """Each request is answered or refused as `stopping`, the exit status is 0, nothing is to recover."""
    broker = start_broker(durability=durability)
    load, clients = Load(), [peers.fast(broker) for _ in range(4)]
    with ThreadPoolExecutor() as pool:
        ends = [pool.submit(load.publish, fast, f"t{row}") for row, fast in enumerate(clients)]
        try:
            enough = times(500, 10_000)
            eventually(lambda: sum(map(len, load.acknowledged.values())) > enough, "there is load")
            assert broker.terminate(number) == 0
            assert "unlocked" in broker.stderr
        finally:
            load.over.set()
    for end in ends:
        end.result()
    assert load.codes <= {"", "stopping"}
    assert {path.suffix for path in broker.topics_directory.rglob("0*")} == {".idx", ".seg"}
    broker.restart(port=free_port())  # where it gets nothing that the publishers have sent last
    fast = peers.fast(broker)
    for topic, stored in load.acknowledged.items():
        found = {record.pointer: record.value for record in fast.read_all(topic)}
        assert stored.items() <= found.items()
        assert list(map(int, found.values())) == list(range(1, len(found) + 1))
        counters = fast.describe(topic).counters
        assert (counters["torn_bytes"], counters["damaged_bytes"]) == (0, 0)


def test_pending_fetches_are_refused_as_stopping(start_broker: StartBroker, peers: Peers) -> None:
    """On topics that exist, open or hibernating, and on others. A client that does not read is no delay."""
    broker = start_broker(worker_timeout=0.05)
    fast = peers.fast(broker)
    for _ in range(8):
        fast.publish("large", [bytes(2**20)])
    slow = peers.fast(broker, unread_max=1)
    for _ in range(300):
        slow.send_fetch("large", 0)
    last = fast.publish("t", [b"x"]).last
    asked = [fast.send_fetch("t", last, wait_ms=60_000) for _ in range(100)]
    asked += [fast.send_fetch("unknown", 0, wait_ms=60_000) for _ in range(100)]
    eventually(lambda: fast.status(limit=0).waits == 200, "all wait")
    assert broker.terminate() == 0
    assert {code_of(answer) for answer in fast.answers_to(asked)} == {"stopping"}


def test_large_replies_reach_a_slow_reader_before_the_end(start_broken: StartBroken, peers: Peers) -> None:
    broker = start_broken(
        "from quothd import broker\nfrom quothd.frontend import loop\nbroker.LINGER_S = loop.LINGER_S = 10.0"
    )
    fast = peers.fast(broker)
    for _ in range(8):
        fast.publish("t", [bytes(2**20)])
    asked = [fast.send_fetch("t", 0, bytes_max=2**20) for _ in range(20)]
    first = fast.answer_to(asked[0])
    assert broker.terminate() == 0
    for answer in [first, *fast.answers_to(asked[1:])]:
        assert code_of(answer) == "stopping" or found_in(answer).values == [bytes(2**20)]


# -- what cannot be finished ----------------------------------------------------------------------------


def test_a_stop_that_runs_out_of_time_keeps_the_lock_and_the_descriptors(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    """A thread may still write to them."""
    broker = Broker(tmp_path, stop_timeout=0.1, worker_timeout=600.0, filesystem=disk).start()
    with FastPeer(broker.context, broker.url) as fast:
        fast.publish("t", [b"x"])
        eventually(lambda: fast.status(limit=0).counters["syncs"], "only the next one is synced later")
        disk.stall("t~", "sync")
        fast.send_publish("t", [b"y"], "synced")
        assert disk.has_stalled.wait(DEADLINE_S)
    front_end = broker._front_end
    assert front_end is not None
    entry = front_end._dispatcher.registry.entries.get("t")
    assert entry is not None
    assert entry.executor is not None
    thread = entry.executor.thread
    wakeup = os.fstat(front_end._outbox.fd)
    with pytest.raises(Disconnected, match=r"timed_out: .*'t'.* at work after 100 milliseconds") as caught:
        broker.stop()
    assert broker.failure is broker.unsynced is caught.value
    broker.stop()
    with pytest.raises(Conflict, match="locked"):
        Broker(tmp_path).start()
    disk.heal()
    eventually(lambda: not thread.is_alive, "it closes its log, though late")
    assert os.path.samestat(os.fstat(front_end._outbox.fd), wakeup)
    (folder,) = (tmp_path / "topics").glob("t~*")
    with Log.open(folder) as log:
        assert [record.value for record in log.read()] == [b"x", b"y"]
    with pytest.raises(Conflict, match="locked"):
        broker.start()


def test_a_thread_that_ends_does_not_write_to_a_closed_descriptor(tmp_path: Path) -> None:
    """Its last events may be taken before its wakeup, and the descriptor be the one of another file then."""
    found: list[bool] = []

    def slow_down(outbox: Outbox[Any]) -> None:
        real = outbox.wake

        def wake() -> None:
            if threading.current_thread().name.startswith("quoth-topic"):
                pause(0.1)
                found.append(Path(f"/dev/fd/{outbox.fd}").exists())
            real()

        outbox.wake = wake  # type: ignore[method-assign]

    def ends_with_a_wakeup() -> bool:
        """Return True if a thread has woken the front end, which it does only while that polls."""
        broker = Broker(tmp_path, check_interval=0.01, worker_timeout=60.0).start()
        with FastPeer(broker.context, broker.url) as fast:
            fast.publish("t", [b"x"])
        assert broker._front_end is not None
        slow_down(broker._front_end._outbox)
        broker.stop()
        return bool(found)

    eventually(ends_with_a_wakeup, "the last events wake the front end")
    assert set(found) == {True}


HANGS = """
import os, time
real = os.fdatasync
def fdatasync(fd):
    if os.path.exists("broken"):
        time.sleep(1_000)
    real(fd)
os.fdatasync = fdatasync
"""
DEFECT = """
from quothd.frontend.dispatcher import Dispatcher
real = Dispatcher.submit
def submit(dispatcher, request, now):
    if request.topic == "defect":
        not_defined()
    real(dispatcher, request, now)
Dispatcher.submit = submit
"""


@pytest.fixture
def start_broken(start_broker: StartBroker, tmp_path: Path) -> StartBroken:
    """Start a broker process after some code, which breaks something or makes it wait longer."""

    def start(code: str, **settings: Any) -> BrokerProcess:
        return start_broker(prefix=behind(code), popen={"cwd": tmp_path}, **settings)

    return start


def test_a_daemon_that_could_not_sync_a_topic_names_it_and_exits_with_1(
    start_broken: StartBroken, peers: Peers, tmp_path: Path
) -> None:
    """The log says which records are safe, and the next start goes on."""
    broker = start_broken(HANGS, stop_timeout=0.5, worker_timeout=60)
    fast = peers.fast(broker)
    fast.publish("t", [b"1"], "synced")
    (tmp_path / "broken").touch()
    fast.publish("t", [b"2"])
    assert broker.terminate() == 1
    assert "quothd: everything is synced" not in broker.stderr
    line = broker.wait_for("quothd: not everything is synced")
    assert all(words in line for words in ("1 topic ('t')", "at work", "acknowledged as synced is safe"))
    fast.close()
    (tmp_path / "broken").unlink()
    fast = peers.fast(broker.restart(stop_timeout=DEADLINE_S))
    assert fast.fetch("t").values[0] == b"1"
    assert fast.publish("t", [b"3"], "synced").durability == "synced"
    assert broker.terminate() == 0
    assert "everything is synced, the directory is unlocked" in broker.stderr


def test_a_daemon_whose_front_end_breaks_down_syncs_and_exits_with_1(
    start_broken: StartBroken, peers: Peers
) -> None:
    broker = start_broken(DEFECT, sync_interval=60, worker_timeout=60)
    fast = peers.fast(broker)
    fast.publish("t", [b"x"])
    fast.send_publish("defect", [b"x"])
    assert broker.wait() == 1
    assert "NameError" in broker.stderr
    assert "quothd: everything is synced" in broker.stderr
    fast.close()
    fast = peers.fast(broker.restart())
    assert fast.fetch("t").values == [b"x"]
    assert fast.describe("t").counters["torn_bytes"] == 0
