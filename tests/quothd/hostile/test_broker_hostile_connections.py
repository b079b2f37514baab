"""Broken connections, clients that do not read, and equal identities: no other client suffers from them."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import statistics
import struct
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, replied
from kit.deadlines import DEADLINE_S, eventually
from kit.machine.ports import free_port
from kit.machine.processes import descriptors, needs_proc, resident_bytes
from kit.scale import times
from kit.zmtp import GREETING, handshaken, message, raw, raw_to, ready, reset
from quothd.connections.route_guard import AHEAD
from quothwire.protocol import announcement
from quothwire.protocol.messages import CreateTopic, Ping, Pong

QUICK_S = 0.2
"""Ten times the duration of a request on a busy machine, and a fraction of that of a blocked one."""


def ping(connection: socket.socket) -> None:
    """Send a ping on a connection and wait for the answer."""
    connection.sendall(message([b"", b"ping"]))
    answer = b""
    while b"ok" not in answer:
        part = connection.recv(4_096)
        assert part
        answer += part


def ends(connection: socket.socket) -> bool:
    """Read until the broker closes the connection; False if it does not."""
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def works(peer: FastPeer) -> float:
    """Send a request of a good client; returns its duration in seconds."""
    began = time.monotonic()
    assert isinstance(replied(peer.answer_to(peer.send(Ping()))), Pong)
    return time.monotonic() - began


NOISE: dict[str, bytes] = {
    "nothing": b"",
    "zeros": bytes(1_000),
    "a TLS hello": bytes.fromhex("1603010200010001fc0303") + bytes(500),
    "half a greeting": GREETING[:11],
    "another mechanism": GREETING.replace(b"NULL\0", b"PLAIN"),
    "a greeting and noise": GREETING + b"\xde\xad\xbe\xef" * 100,
    "a greeting and nothing": GREETING,
    "a greeting and half a handshake": GREETING + b"\x04\x26\x05READY",
    "ones": b"\xff" * 1_000,
    "ZMTP 1, of ZeroMQ 2": b"\x01\x00",
    "ZMTP 2, of ZeroMQ 3": GREETING[:10] + b"\1\5",
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
}


@needs_proc
def test_connections_without_a_handshake_are_closed_and_slow_no_client_down(
    fast: FastPeer, broker: BrokerProcess
) -> None:
    """However many they are."""
    works(fast)
    before = descriptors(broker.pid)
    with ExitStack() as stack:
        connections = {name: stack.enter_context(raw(broker)) for name in NOISE}
        for name, noise in NOISE.items():
            connections[name].sendall(noise)
        idle = [stack.enter_context(raw(broker)) for _ in range(times(100, 1_000))]
        for connection in idle:
            assert connection.recv(1), "it was accepted: the broker greets at once"
        assert statistics.median(works(fast) for _ in range(100)) < QUICK_S
        assert [name for name, connection in connections.items() if not ends(connection)] == []
        eventually(lambda: descriptors(broker.pid) <= before, "all are closed")
    works(fast)


@pytest.mark.parametrize("noise", ["ZMTP 1, of ZeroMQ 2", "ZMTP 2, of ZeroMQ 3"])
def test_earlier_versions_of_zeromq_are_refused_at_every_endpoint(broker: BrokerProcess, noise: str) -> None:
    """libzmq does not say which connection their messages come from: no limit would hold."""
    for url in (broker.url, broker.announcements):
        with raw_to(url) as connection:
            connection.sendall(NOISE[noise])
            assert ends(connection)


def test_connections_over_tcp_and_ipc_that_end_at_once_leave_the_broker_at_work(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, rng: random.Random
) -> None:
    """The descriptor of one belongs to one of the other kind before the broker has looked at it."""
    path = tmp_path / "at"
    port = free_port()
    broker = start_broker(listen=f"tcp://127.0.0.1:{port},ipc://{path}")
    good = peers.fast(broker)
    address = "127.0.0.1", port
    places = [path, Path(f"{path}{announcement.SUFFIX}")]
    for _ in range(times(10_000, 200_000)):
        is_tcp = rng.random() < 0.6
        with closing(socket.socket(socket.AF_INET if is_tcp else socket.AF_UNIX)) as connection:
            with suppress(OSError):
                connection.connect(address if is_tcp else str(rng.choice(places)))
                connection.sendall(b"\xff" * 12)
            if is_tcp and rng.random() < 0.5:
                reset(connection)
    works(good)
    assert broker.exit_status is None, broker.stderr
    assert not broker.logged_problems, broker.stderr
    assert good.status(limit=0).counters["announcer_running"]


@needs_proc
def test_hundreds_of_clients_that_connect_at_once_are_accepted_without_another_attempt(
    fast: FastPeer, broker: BrokerProcess
) -> None:
    """The system keeps as many as the broker says, or drops them: then they try again after a second."""
    most = int(Path("/proc/sys/net/core/somaxconn").read_text())
    works(fast)
    broker.freeze()
    with ExitStack() as stack:
        for _ in range(min(most, 600)):
            stack.enter_context(raw(broker))  # the system accepts it
        os.kill(broker.pid, signal.SIGCONT)
        works(fast)


@needs_proc
def test_a_frame_that_claims_to_be_huge_ends_its_connection_and_takes_no_memory(
    fast: FastPeer, broker: BrokerProcess
) -> None:
    works(fast)
    before = resident_bytes(broker.pid)
    for size in (18 * 2**20, 2**31, 2**32, 2**63 - 1, 2**64 - 1):
        with handshaken(broker) as connection:
            ping(connection)
            connection.sendall(b"\x02" + struct.pack(">Q", size))
            assert ends(connection)
    assert resident_bytes(broker.pid) - before < 8 * 2**20
    works(fast)


@pytest.mark.parametrize("name", [b"\xff\xfe", b"a\0b", b"", b"x" * 200])
def test_a_client_without_a_key_that_gives_itself_a_user_id_is_like_others(
    fast: FastPeer, broker: BrokerProcess, name: bytes
) -> None:
    with handshaken(broker, User_Id=name) as connection:
        for _ in range(2):
            ping(connection)
        works(fast)


def test_a_client_that_ends_within_a_message_leaves_the_others_working(
    fast: FastPeer, broker: BrokerProcess
) -> None:
    for part in (b"\x00\x0apub", b"\x01\x00\x01\x07publish", b"\x01\x00\x01\x07publish\x01\x01t", b"\x02"):
        with handshaken(broker) as connection:
            connection.sendall(part)
        works(fast)


def test_a_second_client_with_the_same_identity_takes_the_place_of_the_first_one(
    broker: BrokerProcess, fast: FastPeer
) -> None:
    with handshaken(broker, Identity=b"the same") as first:
        ping(first)
        with handshaken(broker, Identity=b"the same") as second:
            ping(second)
            assert ends(first)
            ping(second)
    works(fast)


@needs_proc
def test_connections_with_the_same_identity_leave_no_memory_behind(
    broker: BrokerProcess, fast: FastPeer
) -> None:
    """libzmq reads no message of a connection whose identity is taken, unless the later one takes it over."""
    works(fast)
    before = resident_bytes(broker.pid)
    sent = message([b"", b"ping", bytes(2**20)]) * 20
    for _ in range(10):
        with suppress(ConnectionError), handshaken(broker, Identity=b"the same") as connection:
            connection.sendall(sent)
    works(fast)
    eventually(lambda: resident_bytes(broker.pid) < before + 100 * 2**20, "memory is given back")


@needs_proc
def test_connections_that_libzmq_does_not_close_keep_no_client_out(
    start_broker: StartBroker, peers: Peers
) -> None:
    """Their messages have no room, and no route on which they are read, so libzmq looks at them no more."""
    broker = start_broker(connections_max=64)
    opened = descriptors(broker.pid)
    with ExitStack() as stack:
        namesakes = [stack.enter_context(handshaken(broker, Identity=b"the same")) for _ in range(60)]
        for connection in namesakes:
            connection.sendall(message([b"", b"ping"]) * 100)
    assert descriptors(broker.pid) > opened + 50, "libzmq has been mended: it closes them all"
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(raw(broker))
        broker.wait_for("event=connections_reset")
    works(peers.fast(broker))
    eventually(lambda: descriptors(broker.pid) < opened + 20, "all of them are closed")


FIRST = 0x6B8B4567
"""The first number of libzmq's routes after `srand(1)`."""


@pytest.fixture
def known_routes(start_broker: StartBroker, tmp_path: Path) -> BrokerProcess:
    """Start a broker whose routes begin at `FIRST`."""
    (tmp_path / "sitecustomize.py").write_text("import secrets\nsecrets.randbits = lambda _: 1\n")
    return start_broker(environment={"PYTHONPATH": str(tmp_path)})


def choose(broker: BrokerProcess, number: int) -> socket.socket:
    """Connect with a route that libzmq will give out, and stay silent."""
    connection = raw(broker)
    route = b"\0" + (FIRST + number).to_bytes(4)
    connection.sendall(GREETING + ready(Identity=route))
    return connection


def come_and_go(broker: BrokerProcess, count: int, good: FastPeer) -> int:
    """Connect again and again, each time with a request; returns how many were answered."""
    answered = 0
    for number in range(count):
        with suppress(ConnectionError), handshaken(broker) as connection:
            connection.sendall(message([b"", b"ping"]))
            answered += b"ok" in until(connection, b"ok")
        assert broker.exit_status is None, broker.stderr
        if number % 100 == 0:
            works(good)
    return answered


def until(connection: socket.socket, end: bytes) -> bytes:
    """Return what comes, up to some bytes or to the end."""
    answer = b""
    while end not in answer and (part := connection.recv(4_096)):
        answer += part
    return answer


def insist(connections: list[socket.socket]) -> list[bytes]:
    """Send a request again and again until all connections are ended; returns what has come over each."""
    answers = dict.fromkeys(connections, b"")
    open_ = {*connections}

    def have_ended() -> bool:
        readable, _, _ = select.select(open_, [], [], 0.1)
        for one in readable:
            part = b""
            with suppress(ConnectionError):
                part = one.recv(4_096)
            answers[one] += part
            if not part:
                open_.remove(one)
        for one in open_:
            with suppress(ConnectionError):
                one.sendall(message([b"", b"ping"]))
        return not open_

    eventually(have_ended, "they are ended")
    return [*answers.values()]


@needs_proc
def test_silent_connections_with_the_routes_of_the_next_clients_are_ended(
    known_routes: BrokerProcess, peers: Peers
) -> None:
    """libzmq would end the process when it comes to one of them. A client with requests is never ended."""
    good = peers.fast(known_routes)
    works(good)
    with ExitStack() as stack:
        far = AHEAD + 300
        for number in (AHEAD // 2, far, far + 1, far + 200):
            stack.enter_context(choose(known_routes, number))
        beyond = stack.enter_context(choose(known_routes, 2**30))
        answered = come_and_go(known_routes, far + 300, good)
        assert answered > far + 250, "few are ended before their first message"
        assert ends(beyond), "with the others, since none has sent a message"
    with choose(known_routes, far + 1_000) as late:
        come_and_go(known_routes, 10, good)
        assert ends(late)
    works(good)
    assert known_routes.exit_status is None, known_routes.stderr
    known_routes.wait_for("reason=identity")


@needs_proc
def test_a_route_that_was_given_out_before_is_refused_to_a_later_client(
    known_routes: BrokerProcess, peers: Peers
) -> None:
    """An answer would tell an attacker where the routes are. It is ended once its messages cannot be late."""
    good = peers.fast(known_routes)
    come_and_go(known_routes, 100, good)
    with ExitStack() as stack:
        others = [stack.enter_context(choose(known_routes, number)) for number in (10, 50, 90)]
        for other in others:
            until(other, b"READY")
        for answer in insist(others):
            assert b"ok" not in answer
    works(good)
    known_routes.wait_for("event=connection_ended reason=identity")


@needs_proc
def test_a_client_whose_route_another_one_claims_learns_at_once_that_it_has_no_connection(
    known_routes: BrokerProcess, peers: Peers
) -> None:
    """Both are ended: libzmq has taken the route from it, and would keep its messages unread."""
    good = peers.fast(known_routes)
    with ExitStack() as stack:
        connected = [stack.enter_context(handshaken(known_routes)) for _ in range(40)]
        for connection in connected:
            ping(connection)
        come_and_go(known_routes, 2, good)  # after two reports the broker knows which routes are older
        other = stack.enter_context(choose(known_routes, 30))
        until(other, b"READY")
        other.sendall(message([b"", b"ping"]))
        assert ends(other)
        (victim,), _, _ = select.select(connected, [], [], DEADLINE_S)
        assert ends(victim)
        for connection in {*connected} - {victim}:
            ping(connection)
    works(good)


def test_an_identity_may_be_any_bytes(peers: Peers, broker: BrokerProcess) -> None:
    for identity in (b"x", b"\xff" * 255, b"\x01" + bytes(200), b"ping"):
        works(peers.fast(broker, identity=identity))


@needs_proc
def test_a_client_that_does_not_read_slows_no_other_down_and_bounds_its_memory(
    start_broker: StartBroker, peers: Peers
) -> None:
    """The broker stores its publishes."""
    broker = start_broker()
    fast = peers.fast(broker)
    fast.call(CreateTopic(), "of the slow")
    for _ in range(16):
        fast.publish("t", [bytes(2**20)])
    before = resident_bytes(broker.pid)
    slow = peers.fast(broker, unread_max=1)
    for _ in range(2_000):
        slow.send_fetch("t", 0, bytes_max=2**20)
    for _ in range(500):
        slow.send_publish("of the slow", [b"x"])
    took = []
    for i in range(times(100, 3_000)):
        began = time.monotonic()
        fast.publish("other", [b"%d" % i])
        took.append(time.monotonic() - began)
        assert resident_bytes(broker.pid) - before < 250 * 2**20
    assert statistics.median(took) < QUICK_S
    eventually(lambda: fast.status(limit=0).counters.get("replies_dropped", 0) > 0, "replies are dropped")
    eventually(lambda: len(fast.values("of the slow")) == 500, "all records are stored")
    assert len(fast.values("other")) == len(took)
    assert resident_bytes(broker.pid) - before < 250 * 2**20


def await_end(monitor: zmq.Socket[bytes]) -> None:
    """Wait until the broker ends the connection of a socket, because of its type."""
    events: list[int] = []
    while zmq.EVENT_DISCONNECTED not in events:
        assert monitor.poll(int(DEADLINE_S * 1_000)), "the handshake has ended"
        events.append(recv_monitor_message(monitor)["event"])
    assert zmq.EVENT_HANDSHAKE_SUCCEEDED not in events


def send_if_connected(socket: zmq.Socket[bytes], *frames: bytes) -> None:
    """Send frames, unless libzmq has found out already that the socket's type is refused."""
    with suppress(zmq.Again):
        socket.send_multipart(frames, zmq.DONTWAIT)


def test_sockets_of_other_types_get_no_answer(peers: Peers, broker: BrokerProcess, fast: FastPeer) -> None:
    for kind in (zmq.SUB, zmq.PUSH, zmq.PULL, zmq.PUB):
        with (
            closing(peers.context.socket(kind)) as other,
            closing(other.get_monitor_socket(addr=f"inproc://events of {kind}")) as monitor,
        ):
            other.set(zmq.LINGER, 0)
            if kind == zmq.SUB:
                other.subscribe(b"")
            other.connect(broker.url)
            await_end(monitor)
            if kind in (zmq.PUSH, zmq.PUB):
                send_if_connected(other, b"ping")
            else:
                assert not other.poll(100)
            works(fast)
            other.disable_monitor()  # a report to a monitor that is closed would block the context's thread
    with closing(peers.context.socket(zmq.DEALER)) as other:
        other.set(zmq.LINGER, 0)
        other.connect(broker.announcements)
        send_if_connected(other, b"", b"ping")
        assert not other.poll(100)
    works(fast)
