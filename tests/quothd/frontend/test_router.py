"""Whole messages on a real ROUTER, received and sent by the functions in use, compiled or not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq

from kit.deadlines import DEADLINE_S
from quothd.frontend.router import COPY_BELOW_BYTES, MESSAGES_MAX, receive_messages, send_message

Socket = zmq.Socket[bytes]


@pytest.fixture
def pair() -> Iterator[tuple[Socket, Socket]]:
    """Return a ROUTER that refuses unknown clients, and a DEALER ``d`` that is connected to it."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
        for one in (router, dealer):
            one.set(zmq.LINGER, 0)
            one.set(zmq.RCVTIMEO, int(DEADLINE_S * 1_000))
        router.set(zmq.ROUTER_MANDATORY, 1)
        dealer.set(zmq.ROUTING_ID, b"d")
        router.bind("inproc://router")
        dealer.connect("inproc://router")
        yield router, dealer


def test_frames_arrive_as_they_were_sent_large_ones_as_views(pair: tuple[Socket, Socket]) -> None:
    router, dealer = pair
    assert receive_messages(router) == []
    frames = [b"", b"small", b"l" * COPY_BELOW_BYTES, b"end"]
    dealer.send_multipart(frames)
    assert router.poll(int(DEADLINE_S * 1_000))
    ((client, *received),) = receive_messages(router)
    assert client == b"d"
    assert list(map(bytes, received)) == frames
    assert [type(frame) for frame in received] == [bytes, bytes, memoryview, bytes]


def test_no_more_messages_are_received_at_once_than_allowed(pair: tuple[Socket, Socket]) -> None:
    router, dealer = pair
    for number in range(MESSAGES_MAX + 3):
        dealer.send(b"%d" % number)
    assert router.poll(int(DEADLINE_S * 1_000))
    first, rest = receive_messages(router), receive_messages(router)
    assert [len(first), len(rest)] == [MESSAGES_MAX, 3]
    assert [frames[1] for frames in first + rest] == [b"%d" % number for number in range(MESSAGES_MAX + 3)]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"x",
        memoryview(b"abcd")[1:3],
        bytearray(b"abc"),
        b"l" * COPY_BELOW_BYTES,
        memoryview(b"v" * 2**17),
    ],
    ids=("empty", "bytes", "view", "bytearray", "large", "large view"),
)
def test_a_frame_of_any_kind_is_sent(pair: tuple[Socket, Socket], frame: bytes) -> None:
    router, dealer = pair
    dealer.send(b"hello")
    assert router.poll(int(DEADLINE_S * 1_000))
    receive_messages(router)
    send_message(router, [b"d", frame, frame])
    assert dealer.recv_multipart() == [bytes(frame)] * 2


def test_errors_are_those_of_pyzmq(pair: tuple[Socket, Socket]) -> None:
    router, _ = pair
    with pytest.raises(zmq.ZMQError) as raised:
        send_message(router, [b"unknown", b"x"])
    assert raised.value.errno == zmq.EHOSTUNREACH
    router.close()
    for call in (lambda: send_message(router, [b"d", b"x"]), lambda: receive_messages(router)):
        with pytest.raises(zmq.ZMQError) as raised:
            call()
        assert raised.value.errno == zmq.ENOTSOCK


def test_a_client_without_room_raises_again(pair: tuple[Socket, Socket]) -> None:
    router, dealer = pair
    dealer.send(b"hello")
    assert router.poll(int(DEADLINE_S * 1_000))
    receive_messages(router)

    def fill() -> None:
        for _ in range(10_000):
            send_message(router, [b"d", b"x"])

    with pytest.raises(zmq.Again):
        fill()
