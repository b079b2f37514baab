"""A broker inside a program: the same topics by the same requests, in this process or from others."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers, code_of, found_in, refused, replied
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.machine.processes import descriptors, needs_proc
from quothd import Broker, Config
from quothd.frontend.router import Router
from quothlog import Log
from quothlog.storage.filesystem import PosixFile
from quothwire import batch
from quothwire.errors import QuothError
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import (
    FETCH_BYTES_MAX,
    WAIT_MS_MAX,
    CreateTopic,
    Hello,
    ListTopics,
    Operation,
    Ping,
    Pong,
    Welcome,
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the broker of a test keeps its topics."""
    return tmp_path / "data"


@pytest.fixture
def embedded(directory: Path) -> Iterator[Broker]:
    """A broker that others reach by tcp."""
    with Broker(directory, host="127.0.0.1") as broker:
        yield broker


def test_by_default_it_is_reached_from_this_process_only(directory: Path) -> None:
    """Through its context; nothing listens on the network."""
    with Broker(directory) as broker:
        assert broker.urls == (broker.url,)
        assert broker.url.startswith("inproc://")
        with FastPeer(broker.context, broker.url) as fast:
            fast.publish("t", [b"x"])
            assert fast.fetch("t").values == [b"x"]
            assert fast.call(Hello()).announcements == ""


def test_it_may_be_reached_from_others_too(embedded: Broker, peers: Peers) -> None:
    """The first URL is the one for them."""
    assert [url.partition(":")[0] for url in embedded.urls] == ["tcp", "inproc"]
    with FastPeer(embedded.context, embedded.urls[1]) as inside:
        inside.publish("t", [b"x"])
    assert peers.fast(embedded).fetch("t").values == [b"x"]


def test_the_daemon_goes_on_where_a_program_ended(
    directory: Path, start_broker: StartBroker, peers: Peers
) -> None:
    """One directory, whoever opens it."""
    with Broker(directory) as broker, FastPeer(broker.context, broker.url) as fast:
        first = fast.publish("t", [b"1"])
    daemon = start_broker(directory=directory)
    assert [record.pointer for record in peers.fast(daemon).read_all("t")] == [first.first]
    assert daemon.terminate() == 0
    with Broker(directory) as broker, FastPeer(broker.context, broker.url) as fast:
        assert fast.fetch("t").values == [b"1"]


def test_a_directory_has_one_owner_in_a_process_too(directory: Path) -> None:
    """And whoever is refused leaves nothing behind."""
    with Broker(directory) as broker:
        before = set(threading.enumerate())
        with pytest.raises(QuothError) as caught:
            Broker(directory).start()
        assert caught.value.code == "locked"
        assert f"process {os.getpid()}" in caught.value.text
        eventually(lambda: set(threading.enumerate()) <= before, "no thread is left")
        assert broker.url
    with Broker(directory) as broker:
        assert broker.url


def test_it_has_no_url_unless_it_runs(directory: Path) -> None:
    """And stopping twice does nothing."""
    broker = Broker(directory)
    with pytest.raises(QuothError, match="closed"):
        _ = broker.url
    broker.start()
    assert broker.url
    for _ in range(2):
        broker.stop()
        with pytest.raises(QuothError, match="closed"):
            _ = broker.url


@needs_proc
def test_a_broker_that_was_stopped_leaves_nothing_behind(directory: Path) -> None:
    """No thread and no descriptor, topics awake or asleep."""

    def live() -> None:
        with Broker(directory, host="127.0.0.1") as broker, FastPeer(broker.context, broker.url) as fast:
            for row in range(5):
                fast.publish(f"t{row}", [b"x"])
            fast.send_fetch("t0", 2**50, wait_ms=60_000)

    live()
    before = threading.active_count(), descriptors(os.getpid())
    for _ in range(3):
        live()
    eventually(lambda: threading.active_count() <= before[0], "all threads have ended")
    eventually(lambda: descriptors(os.getpid()) <= before[1], "all descriptors are closed")


def test_it_may_be_stopped_by_another_thread(directory: Path) -> None:
    broker = Broker(directory).start()
    stopper = threading.Thread(target=broker.stop)
    stopper.start()
    stopper.join(DEADLINE_S)
    assert not stopper.is_alive()
    assert broker.failure is None


def test_it_may_be_started_again_while_clients_of_this_process_are_open(directory: Path) -> None:
    """They end what they were connected to, not what comes after it."""
    broker = Broker(directory).start()
    with FastPeer(broker.context, broker.url) as before:
        before.publish("t", [b"x"])
        broker.stop()
        with broker, FastPeer(broker.context, broker.url) as fast:
            assert fast.fetch("t").values == [b"x"]


def test_several_brokers_live_in_one_process(tmp_path: Path) -> None:
    """With a directory each."""
    with Broker(tmp_path / "a") as one, Broker(tmp_path / "b") as other:
        for broker, value in ((one, b"1"), (other, b"2")):
            with FastPeer(broker.context, broker.url) as fast:
                fast.publish("t", [value])
                assert fast.values("t") == [value]


def test_it_takes_a_whole_configuration(directory: Path) -> None:
    config = Config(dir=directory, host="", auto_create=False)
    with (
        Broker(directory, config=config) as broker,
        FastPeer(broker.context, broker.url) as fast,
        refused("unknown_topic"),
    ):
        fast.publish("t", [b"x"])


def test_its_environment_is_its_arguments(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables are for the daemon, a program says what it wants."""
    monkeypatch.setenv("QUOTH_AUTO_CREATE", "0")
    with Broker(directory) as broker, FastPeer(broker.context, broker.url) as fast:
        fast.publish("t", [b"x"])
    with pytest.raises(QuothError, match="did you mean"):
        Broker(directory, worker_timout=1)


# -- what is asked of the broker as a whole -------------------------------------------------------------


def test_hello_tells_what_a_client_has_to_know(embedded: Broker, peers: Peers) -> None:
    """Versions, operations, limits, where it announces."""
    reply = peers.fast(embedded).call(Hello(client="a test"))
    assert isinstance(reply, Welcome)
    assert reply.server.startswith("quothd ")
    assert reply.versions == [binary_codec.VERSION]
    assert reply.operations == [operation.name.lower() for operation in Operation]
    host, _, port = embedded.url.rpartition(":")
    assert reply.announcements == f"{host}:{int(port) + 1}"
    assert reply.limits["batch_bytes_max"] == batch.BATCH_BYTES_MAX
    assert reply.limits["batch_records_max"] == batch.BATCH_RECORDS_MAX
    assert reply.limits["wait_ms_max"] == WAIT_MS_MAX
    assert reply.limits["fetch_bytes_max"] == FETCH_BYTES_MAX


def test_ping_tells_the_time(embedded: Broker, peers: Peers) -> None:
    """As a pointer, through both protocols; what is stored afterwards lies above it."""
    fast, simple = peers.fast(embedded), peers.simple(embedded)
    reply = fast.call(Ping())
    assert isinstance(reply, Pong)
    (told,) = map(int, simple.call("ping"))
    assert reply.time <= told <= fast.publish("t", [b"x"]).first


@pytest.mark.parametrize("kind", [zmq.REQ, zmq.DEALER])
def test_both_socket_types_speak_the_simple_protocol(embedded: Broker, peers: Peers, kind: int) -> None:
    simple = peers.simple(embedded, kind)
    first, last = simple.publish("t", b"1", b"2")
    assert simple.read("t") == (last, [(first, b"1"), (last, b"2")])
    assert simple.topics() == ["t"]
    assert simple.ask("nonsense")[:2] == [b"error", b"unknown_operation"]


# -- a machine that has no more threads -----------------------------------------------------------------


class Threads:
    """Lets threads of some names not be started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused = ""
        self._real = threading.Thread.start
        monkeypatch.setattr(threading.Thread, "start", lambda thread: self.start(thread))

    def start(self, thread: threading.Thread) -> None:
        """See `threading.Thread.start`."""
        if self.refused and thread.name.startswith(self.refused):
            raise RuntimeError("can't start new thread")
        self._real(thread)


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    """See `Threads`."""
    return Threads(monkeypatch)


def test_a_topic_that_gets_no_thread_is_refused_as_busy(
    directory: Path, peers: Peers, no_threads: Threads
) -> None:
    """New or not; the broker goes on, and so does the topic once there are threads again."""
    with Broker(directory, host="127.0.0.1", worker_timeout=0.05) as broker:
        fast = peers.fast(broker)
        fast.publish("old", [b"1"])
        eventually(lambda: fast.status(limit=0).active == 0, "the topic sleeps")
        no_threads.refused = "quoth-topic"
        for _ in range(3):
            for name in ("old", "new"):
                answers = fast.answers_to([fast.send_publish(name, [b"x"]) for _ in range(5)])
                assert {code_of(answer) for answer in answers} == {"busy"}
        assert fast.call(ListTopics()).names == ["old"]
        no_threads.refused = ""
        for name in ("old", "new"):
            fast.publish(name, [b"2"])
        assert fast.fetch("old").values == [b"1", b"2"]
        fast.close()


@pytest.mark.parametrize("name", ["quoth-front-end", "quoth-fsync", "quoth-reader-1"])
def test_a_broker_that_gets_no_thread_does_not_start(directory: Path, no_threads: Threads, name: str) -> None:
    """It says so at once, and leaves nothing behind."""
    before = set(threading.enumerate())
    no_threads.refused = name
    raised: list[BaseException] = []

    def start() -> None:
        try:
            Broker(directory).start()
        except BaseException as problem:
            raised.append(problem)

    starter = threading.Thread(target=start, daemon=True)
    starter.start()
    starter.join(DEADLINE_S)
    assert [str(problem) for problem in raised] == ["can't start new thread"]
    no_threads.refused = ""
    with Broker(directory) as broker, FastPeer(broker.context, broker.url) as fast:
        fast.publish("t", [b"x"])
    eventually(lambda: set(threading.enumerate()) <= before, "all threads have ended")


# -- limits ---------------------------------------------------------------------------------------------


def test_a_topic_that_is_long_in_opening_says_so(
    embedded: Broker, peers: Peers, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers get `recovering` instead of silence, others wait; both work once it is open."""
    embedded.stop()
    opened = threading.Event()
    real = Log.open

    def slowly(*args: Any, **kwargs: Any) -> Log:
        assert opened.wait(DEADLINE_S)
        return real(*args, **kwargs)

    monkeypatch.setattr(Log, "open", slowly)
    with Broker(directory, host="127.0.0.1", recovering_after=0.05) as broker:
        fast = peers.fast(broker)
        early = fast.send_publish("t", [b"x"])
        eventually(lambda: fast.status(limit=0).active == 1, "the topic is being opened")
        pause(0.1)
        with refused("recovering"):
            fast.fetch("t")
        later = fast.send_publish("t", [b"y"])
        assert isinstance(fast.call(Ping()), Pong)
        opened.set()
        replied(fast.answer_to(early))
        replied(fast.answer_to(later))
        assert fast.values("t") == [b"x", b"y"]
        fast.close()


def test_the_bytes_in_work_are_bounded(
    directory: Path, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C60: `request_bytes_max`; what is above it is refused as `busy` and stores nothing."""
    synced = threading.Event()
    synced.set()
    real = PosixFile.sync

    def sync(file: PosixFile) -> None:
        assert synced.wait(DEADLINE_S)
        real(file)

    monkeypatch.setattr(PosixFile, "sync", sync)
    with Broker(directory, host="127.0.0.1", request_bytes_max=16 * 2**20, durability="synced") as broker:
        fast = peers.fast(broker)
        fast.call(CreateTopic(), "t")
        synced.clear()
        asked = [fast.send_publish("t", [b"%d" % i + bytes(2**20)]) for i in range(20)]
        refusals = [fast.receive() for _ in range(5)]
        assert {code_of(answer) for answer in refusals} == {"busy"}
        assert isinstance(fast.call(Ping()), Pong)
        with refused("busy"):
            fast.publish("other", [bytes(2**20)])
        synced.set()
        early = {answer.correlation for answer in refusals}
        for answer in fast.answers_to([one for one in asked if one not in early]):
            replied(answer)
        assert len(fast.read_all("t")) == 15
        assert fast.call(ListTopics()).names == ["t"]
        fast.publish("t", [bytes(2**20)])
        fast.close()


def test_a_reader_of_large_replies_does_not_hold_up_others(
    directory: Path, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of them, each of which takes long to hand over; a ping is answered in between."""
    sizes: list[int] = []
    pinged = threading.Event()
    real = Router.send

    def slowly(router: Router, frames: list[bytes]) -> None:
        if len(frames) > 100 and not pinged.is_set():
            pause(0.01 if len(sizes) < 100 else 0.1)  # a late ping finds them at it, too
        sizes.append(len(frames))
        real(router, frames)

    monkeypatch.setattr(Router, "send", slowly)
    with Broker(directory, host="127.0.0.1") as broker:
        reader, other = peers.simple(broker), peers.simple(broker)
        reader.publish("t", *[b"x"] * 100)
        for _ in range(300):
            reader.send("read", "t", 0, 100)
        eventually(lambda: max(sizes, default=0) > 100, "replies go out")
        other.call("ping")
        pinged.set()
        assert len(sizes) < 200
        for _ in range(300):
            assert reader.receive()[0] == b"ok"
        reader.close()
        other.close()


def test_a_reader_that_knew_the_topic_does_not_wait_for_another(embedded: Broker, peers: Peers) -> None:
    """He said which record he expects next, so he had seen a topic that is not there any more."""
    fast = peers.fast(embedded)
    with refused("unknown_topic"):
        fast.fetch("t", 5, ordinal=3, wait_ms=60_000)
    asked = fast.send_fetch("t", 0, wait_ms=60_000)
    fast.publish("t", [b"x"])
    assert found_in(fast.answer_to(asked)).values == [b"x"]
