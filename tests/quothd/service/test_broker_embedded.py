"""A broker inside a program: the same topics by the same requests, in this process or from others."""

from __future__ import annotations

import errno
import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.broker.peers import FastPeer, Peers, code_of, hibernate, refused
from kit.deadlines import DEADLINE_S, eventually
from kit.machine.ports import free_port
from kit.machine.processes import descriptors, needs_proc
from quothd import Broker, Config
from quothd.connections.connection_table import LOCAL_MAX
from quothwire import batch
from quothwire.errors import QuothError
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import (
    FETCH_BYTES_MAX,
    WAIT_MS_MAX,
    Hello,
    ListTopics,
    Operation,
    Ping,
    Pong,
    Welcome,
)

Embed = Callable[..., Broker]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def embedded(directory: Path) -> Iterator[Broker]:
    """Start a broker that other processes reach by tcp."""
    with Broker(directory, host="127.0.0.1") as broker:
        yield broker


def test_a_broker_without_a_host_is_reached_through_its_context_only(directory: Path) -> None:
    with Broker(directory, config=Config(dir=directory, host="", auto_create=False)) as broker:
        assert broker.urls == (broker.url,)
        assert broker.url.startswith("inproc://")
        with FastPeer(broker.context, broker.url) as fast:
            assert fast.call(Hello()).announcements == ""
            with refused("unknown_topic"):
                fast.publish("t", [b"x"])


@needs_proc
def test_a_stopped_broker_leaves_no_thread_and_no_descriptor(directory: Path) -> None:

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


def test_a_broker_may_be_started_again_while_clients_of_this_process_are_open(directory: Path) -> None:
    """Meanwhile it has no URL. Another thread may stop it; a second stop does nothing."""
    broker = Broker(directory)
    for _ in range(2):
        with pytest.raises(QuothError, match="closed"):
            _ = broker.url
        broker.stop()
    broker.start()
    with FastPeer(broker.context, broker.url) as before:
        before.publish("t", [b"x"])
        stopper = threading.Thread(target=broker.stop)
        stopper.start()
        stopper.join(DEADLINE_S)
        assert (stopper.is_alive(), broker.failure, broker.urls) == (False, None, ())
        with broker, FastPeer(broker.context, broker.url) as fast:
            assert fast.fetch("t").values == [b"x"]


# -- requests to the broker as a whole -----------------------------------------------------------------


def test_many_clients_inside_the_process_that_come_and_go_keep_no_other_one_out(
    embedded: Broker, peers: Peers
) -> None:
    """libzmq gives them routes like those of other clients, and does not report their ends."""
    local = next(url for url in embedded.urls if url.startswith("inproc://"))
    with FastPeer(embedded.context, local) as first:
        for _ in range(LOCAL_MAX + 50):
            with FastPeer(embedded.context, local) as fast:
                fast.call(Ping())
        first.call(Ping())
    front_end = embedded._front_end  # the number is not shown
    assert front_end is not None
    table = front_end._connections
    assert len(table.routes) == len(table.users) <= LOCAL_MAX + 1
    remote = next(url for url in embedded.urls if url.startswith("tcp://"))
    peers.fast(remote).call(Ping())


def test_hello_has_versions_operations_limits_and_announcements(embedded: Broker, peers: Peers) -> None:
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


def test_ping_has_the_time_as_a_pointer_in_both_protocols(embedded: Broker, peers: Peers) -> None:
    """A record that is stored afterwards, here by the URL of this process, lies above it."""
    assert [url.partition(":")[0] for url in embedded.urls] == ["tcp", "inproc"]
    fast, simple = peers.fast(embedded), peers.simple(embedded)
    reply = fast.call(Ping())
    assert isinstance(reply, Pong)
    (time,) = map(int, simple.call("ping"))
    with FastPeer(embedded.context, embedded.urls[1]) as inside:
        assert reply.time <= time <= inside.publish("t", [b"x"]).first


# -- a machine that has no more threads or descriptors --------------------------------------------------


def test_a_topic_without_a_thread_for_it_is_refused_as_busy(
    directory: Path, peers: Peers, refuse_threads: Callable[[str], None]
) -> None:
    """New or not; the broker goes on, and so does the topic once there are threads again."""
    with Broker(directory, host="127.0.0.1", worker_timeout=0.05) as broker:
        fast = peers.fast(broker)
        fast.publish("old", [b"1"])
        hibernate(fast)
        refuse_threads("quoth-topic")
        for _ in range(3):
            for name in ("old", "new"):
                answers = fast.answers_to([fast.send_publish(name, [b"x"]) for _ in range(5)])
                assert {code_of(answer) for answer in answers} == {"busy"}
        assert fast.call(ListTopics()).names == ["old"]
        refuse_threads("")
        for name in ("old", "new"):
            fast.publish(name, [b"2"])
        assert fast.fetch("old").values == [b"1", b"2"]
        fast.close()


def test_a_broker_that_cannot_create_a_thread_does_not_start(
    directory: Path, refuse_threads: Callable[[str], None]
) -> None:
    """`start` raises at once, and leaves nothing behind."""
    before = set(threading.enumerate())
    for name in ("quoth-front-end", "quoth-fsync", "quoth-reader-1"):
        refuse_threads(name)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            Broker(directory).start()
        refuse_threads("")
    with Broker(directory) as broker, FastPeer(broker.context, broker.url) as fast:
        fast.publish("t", [b"x"])
    eventually(lambda: set(threading.enumerate()) <= before, "all threads have ended")


@needs_proc
@pytest.mark.parametrize("pipes", [0, 1])
def test_a_start_that_lacks_descriptors_leaves_no_socket_and_keeps_no_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipes: int
) -> None:
    """Its ports are bound by then. pipes: so many the process gets."""
    made: list[int] = []
    pipe = os.pipe

    def limited() -> tuple[int, int]:
        if len(made) == pipes:
            raise OSError(errno.EMFILE, "Too many open files")
        made.append(0)
        return pipe()

    port = free_port()
    broker = Broker(tmp_path, host="127.0.0.1", port=port)
    gc.collect()
    before = descriptors(os.getpid())
    with monkeypatch.context() as patched:
        patched.setattr("quothd.threads.wakeup.os.pipe", limited)
        with pytest.raises(OSError, match="Too many open files"):
            broker.start()
    eventually(lambda: broker.context.closed, "the context has ended")
    assert descriptors(os.getpid()) <= before
    with broker, FastPeer(broker.context, broker.url) as fast:
        fast.publish("t", [b"x"])


# -- limits ---------------------------------------------------------------------------------------------
