"""Whole messages on a real ROUTER, received and sent by the functions in use, compiled or not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Any

import pytest
import zmq

from kit.deadlines import DEADLINE_S, eventually
from kit.pure import needs_compiled, pure
from quothd.connections.router import (
    COPY_BELOW_BYTES,
    MESSAGES_MAX,
    find_taken_route,
    receive_messages,
    route_of,
    send_message,
    wait_for_input,
)

Socket = zmq.Socket[bytes]


@pytest.fixture
def pair() -> Iterator[tuple[Socket, Socket]]:
    """Return a ROUTER that refuses unknown clients, and a DEALER ``d`` that is connected to it."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
        for one in (router, dealer):
            one.set(zmq.LINGER, 0)
            one.set(zmq.RCVTIMEO, int(DEADLINE_S * 1_000))
            one.set(zmq.SNDHWM, 100)
            one.set(zmq.RCVHWM, 100)  # pyzmq waits for ever for room to free more than 1,000 large frames
        router.set(zmq.ROUTER_MANDATORY, 1)
        dealer.set(zmq.ROUTING_ID, b"d")
        router.bind("inproc://router")
        dealer.connect("inproc://router")
        yield router, dealer


def test_frames_arrive_as_they_were_sent_large_ones_as_views(pair: tuple[Socket, Socket]) -> None:
    router, dealer = pair
    assert receive_messages(router, {}) == ([], {}, True)
    frames = [b"", b"small", b"l" * COPY_BELOW_BYTES, b"end"]
    dealer.send_multipart(frames)
    assert router.poll(int(DEADLINE_S * 1_000))
    ((client, *received),), senders, is_all = receive_messages(router, {})
    assert senders == {0: (-1, b"")}
    assert is_all
    assert client == b"d"
    assert list(map(bytes, received)) == frames
    assert [type(frame) for frame in received] == [bytes, bytes, memoryview, bytes]


def test_no_more_messages_are_received_at_once_than_allowed(pair: tuple[Socket, Socket]) -> None:
    router, dealer = pair
    for number in range(MESSAGES_MAX + 3):
        dealer.send(b"%d" % number)
    assert router.poll(int(DEADLINE_S * 1_000))
    (first, _, is_all), (rest, _, is_rest) = receive_messages(router, {}), receive_messages(router, {})
    assert (len(first), is_all, len(rest), is_rest) == (MESSAGES_MAX, False, 3, True)
    assert [frames[1] for frames in first + rest] == [b"%d" % number for number in range(MESSAGES_MAX + 3)]


WAIT_MS = int(DEADLINE_S * 1_000)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Return both ends of a pipe: what it is read from comes first."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_a_wait_returns_what_has_something_to_read(
    pair: tuple[Socket, Socket], pipe: tuple[int, int]
) -> None:
    router, dealer = pair
    assert wait_for_input([router, dealer], pipe[0], 0) == [False, False, False]
    assert wait_for_input([], pipe[0], 1) == [False]
    dealer.send(b"hello")
    assert wait_for_input([router, dealer], pipe[0], WAIT_MS) == [True, False, False]
    os.write(pipe[1], b"x")
    assert wait_for_input([router, dealer], pipe[0], WAIT_MS) == [True, False, True]
    receive_messages(router, {})
    assert wait_for_input([router, dealer], pipe[0], WAIT_MS) == [False, False, True]


def test_no_message_is_overlooked_whichever_call_takes_the_signal_of_a_socket(
    pair: tuple[Socket, Socket], pipe: tuple[int, int]
) -> None:
    """A call that sends, receives or looks at a socket may take the signal that a message has come."""
    router, dealer = pair
    dealer.send(b"hello")
    assert wait_for_input([router], pipe[0], WAIT_MS) == [True, False]
    receive_messages(router, {})
    for number in range(300):
        dealer.send(b"%d" % number)
        for _ in range(number % 3):
            send_message(router, [b"d", b"x"])
        if number % 2:
            router.get(zmq.EVENTS)
        assert wait_for_input([router], pipe[0], WAIT_MS) == [True, False], number
        assert receive_messages(router, {b"d": -1}) == ([[b"d", b"%d" % number]], {}, True)


def test_a_wait_ends_when_another_thread_sends(pair: tuple[Socket, Socket], pipe: tuple[int, int]) -> None:
    router, dealer = pair
    with ThreadPoolExecutor(1) as pool:
        for number in range(50):
            waiting = pool.submit(wait_for_input, [router], pipe[0], WAIT_MS)
            dealer.send(b"%d" % number)
            assert waiting.result(DEADLINE_S) == [True, False]
            receive_messages(router, {})


HOSTILE: list[tuple[Any, Any, Any]] = [
    (None, 0, 0),
    ([None], 0, 0),
    (["a"], 0, 0),
    ([], "a", 0),
    ([], 0, "a"),
    ([], 2**70, 0),
    ([], None, 0),
    ([], 0, None),
]


@needs_compiled
@pytest.mark.parametrize("arguments", HOSTILE)
def test_wrong_arguments_of_a_wait_have_the_same_outcome_in_c_and_in_python(
    arguments: tuple[Any, ...],
) -> None:
    expected = outcome(pure("quothd.connections.router").wait_for_input, *arguments)
    assert outcome(wait_for_input, *arguments) == expected


def outcome(call: Callable[..., object], *arguments: Any) -> object:
    """Return what a call returns, or the type of what it raises."""
    try:
        return call(*arguments)
    except Exception as problem:
        return type(problem)


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
    receive_messages(router, {})
    send_message(router, [b"d", frame, frame])
    assert dealer.recv_multipart() == [bytes(frame)] * 2


def test_errors_are_those_of_pyzmq(pair: tuple[Socket, Socket]) -> None:
    router, _ = pair
    with pytest.raises(zmq.ZMQError) as raised:
        send_message(router, [b"unknown", b"x"])
    assert raised.value.errno == zmq.EHOSTUNREACH
    router.close()
    for call in (lambda: send_message(router, [b"d", b"x"]), lambda: receive_messages(router, {})):
        with pytest.raises(zmq.ZMQError) as raised:
            call()
        assert raised.value.errno == zmq.ENOTSOCK


@pytest.mark.parametrize("last", [b"x", b"l" * COPY_BELOW_BYTES], ids=("small", "large"))
def test_a_message_to_a_client_without_room_is_not_sent(pair: tuple[Socket, Socket], last: bytes) -> None:
    router, dealer = pair
    dealer.send(b"hello")
    assert router.poll(int(DEADLINE_S * 1_000))
    receive_messages(router, {})
    sent = list(takewhile(lambda _: send_message(router, [b"d", b"", last]), range(10_000)))
    assert 0 < len(sent) < 10_000
    assert not send_message(router, [b"d", b"", last])
    for _ in sent:
        assert dealer.recv_multipart() == [b"", last], "no message is sent in part"
    eventually(lambda: send_message(router, [b"d", b"", b"behind"]), "there is room again")
    assert dealer.recv_multipart() == [b"", b"behind"]


@pytest.mark.parametrize("find", [find_taken_route, pure("quothd.connections.router").find_taken_route])
def test_the_first_route_that_a_connection_has_is_found_by_its_number(
    pair: tuple[Socket, Socket], find: Callable[..., int]
) -> None:
    router, _ = pair
    near_zero = 2**32 - 5
    with router.context.socket(zmq.DEALER) as dealer:
        dealer.set(zmq.LINGER, 0)
        dealer.set(zmq.ROUTING_ID, route_of(3))
        dealer.connect("inproc://router")
        dealer.send(b"hello")
        assert router.poll(int(DEADLINE_S * 1_000))
        assert find(router, near_zero, 8) == -1
        assert find(router, near_zero, 9) == near_zero + 8
        assert dealer.recv_multipart() == [b""]
        assert find(router, 4, 1_000) == -1
        assert find(router, 3, 0) == -1
        send_message(router, [route_of(3), b"", b"whole"])
        assert dealer.recv_multipart() == [b"", b"whole"]


def test_a_route_whose_connection_has_no_room_is_taken(context: zmq.Context[Socket]) -> None:
    with context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
        router.set(zmq.ROUTER_MANDATORY, 1)
        router.set(zmq.SNDHWM, 1)
        router.set(zmq.LINGER, 0)
        dealer.set(zmq.RCVHWM, 1)
        dealer.set(zmq.LINGER, 0)
        dealer.set(zmq.ROUTING_ID, route_of(7))
        router.bind("inproc://narrow")
        dealer.connect("inproc://narrow")
        dealer.send(b"hello")
        assert router.poll(int(DEADLINE_S * 1_000))
        receive_messages(router, {})
        assert [send_message(router, [route_of(7), b"x"]) for _ in range(3)] == [True, True, False]
        assert find_taken_route(router, 0, 100) == 7
