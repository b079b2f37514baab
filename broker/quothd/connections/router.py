"""The sockets of libzmq: whole messages, the wait for input, and the routes that are taken.

Every frame passes here. The functions are compiled; in Python, flags are integers, not members of an
enumeration, frames go past the half of pyzmq's `send` that serves other types of sockets, and a poll says
that no message is left, which costs a third of what an exception does.
"""

from __future__ import annotations

import ctypes
import errno
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import zmq

from quothd.connections.connection import Frame, Sender
from quothwire.native import compiled
from quothwire.protocol.binary_codec import Frames

COPY_BELOW_BYTES = 64 * 2**10
"""Below this libzmq copies faster than Python hands a buffer over."""
MESSAGES_MAX = 32
MESSAGES_BYTES_MAX = 2**20
"""So many messages are received at once: as many as take 1 ms to answer. The last one may be larger."""
ROUTE_BYTES = 5
"""A route of libzmq: a zero, and a number of 32 bits."""
NUMBERS = 2**32
_READABLE = int(zmq.POLLIN)
_NOW = int(zmq.NOBLOCK)
_NOW_AND_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_compiled = compiled("quothd._native.router")
_send = ctypes.PyDLL(sys.modules[zmq.backend.Socket.__module__].__file__, use_errno=True).zmq_send
_send.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int


@_compiled
def wait_for_input(sockets: list[zmq.Socket[bytes]], fd: int, milliseconds: int) -> list[bool]:
    """Wait for input of the sockets or of a descriptor; return which have some, the descriptor last."""
    sources: list[Any] = [*sockets, fd]
    found = [source for source, _ in zmq.zmq_poll([(one, _READABLE) for one in sources], milliseconds)]
    return [one in found for one in sources]


@_compiled
def receive_messages(
    socket: zmq.Socket[bytes], users: Mapping[bytes, bytes]
) -> tuple[list[list[Frame]], dict[int, Sender], bool]:
    """Return the frames of messages that have come, without waiting, and True if no message is left.

    Large frames stay in libzmq's memory. users: the keys of known clients by route. The senders of the other
    messages are returned, too, by the number of the message, and those of messages that came with another key
    than their route has: the route does not tell who a client is, since clients may choose it.
    """
    messages: list[list[Frame]] = []
    senders: dict[int, Sender] = {}
    size = 0
    while len(messages) < MESSAGES_MAX and size < MESSAGES_BYTES_MAX:
        if not zmq.zmq_poll([(socket, _READABLE)], 0):
            return messages, senders, True
        frames: list[Frame] = []
        more = True
        while more:
            frame = socket.recv(_NOW, copy=False)
            if not frames and not _is_known(frame, users):
                senders[len(messages)] = _sender(frame)
            frames.append(frame.bytes if len(frame) < COPY_BELOW_BYTES else frame.buffer)
            size += len(frame)
            more = frame.more
        messages.append(frames)
    return messages, senders, False


@_compiled
def send_message(socket: zmq.Socket[bytes], frames: Frames) -> None:
    """Send a message without waiting. Raises zmq.Again where the client has no room, and zmq.ZMQError."""
    send: Callable[..., object] = super(zmq.Socket, socket).send
    *first, last = frames
    copy = len(last) < COPY_BELOW_BYTES
    for frame in first:
        send(frame, _NOW_AND_MORE, copy)
    send(last, _NOW, copy)


@_compiled
def find_taken_route(socket: zmq.Socket[bytes], begin: int, count: int) -> int:
    """Return the first of so many numbers of libzmq's whose route a connection has, -1 if none has.

    The ROUTER has to report messages that it cannot send. The connection gets an empty message. libzmq is
    called without the exceptions of pyzmq, which take longer.
    """
    for number in range(begin, begin + count):
        if _send(int(socket.underlying), route_of(number), ROUTE_BYTES, _NOW_AND_MORE) >= 0:
            socket.send(b"")
            return number
        if ctypes.get_errno() == errno.EAGAIN:
            return number
    return -1


def route_of(number: int) -> bytes:
    """Return the route that libzmq makes of a number."""
    return b"\0" + (number % NUMBERS).to_bytes(4)


def _is_known(frame: zmq.Frame, users: Mapping[bytes, bytes]) -> bool:
    """Return True if the route belongs to the client whose key came with it. Without keys it always does."""
    user = users.get(frame.bytes)
    return user == b"" or (user is not None and user == _user_id(frame))


def _sender(frame: zmq.Frame) -> Sender:
    descriptor = -1
    with suppress(zmq.ZMQError):
        descriptor = int(frame.get(zmq.SRCFD))
    return descriptor, _user_id(frame)


def _user_id(frame: zmq.Frame) -> bytes:
    """Return the key of the client; without keys, its peer writes what it likes there."""
    try:
        return str(frame.get("User-Id")).encode()
    except (zmq.ZMQError, UnicodeDecodeError):
        return b""
