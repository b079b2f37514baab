"""The ROUTER socket, with as few calls as possible between libzmq and the front end.

Every request and every reply passes here frame by frame. So flags are integers, not members of an
enumeration; frames go past the half of pyzmq's `send` that serves other types of sockets; and a poll says
that no message is left, which costs a third of what an exception does.
"""

from __future__ import annotations

from collections.abc import Callable

import zmq

from quothwire.protocol.binary_codec import Frames

COPY_BELOW_BYTES = 64 * 2**10
"""Below this libzmq copies faster than Python hands a buffer over."""
_NOW = int(zmq.NOBLOCK)
_NOW_AND_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)

Frame = bytes | memoryview


class Router:
    """Receives and sends whole messages and never waits. Owned by its thread."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket
        self._send: Callable[..., object] = super(zmq.Socket, socket).send
        self._readable = [(socket, int(zmq.POLLIN))]

    def receive(self) -> list[Frame] | None:
        """Return the frames of the next message, or None. Large frames stay in libzmq's memory."""
        if not zmq.zmq_poll(self._readable, 0):
            return None
        receive = self.socket.recv
        frame = receive(_NOW, copy=False)
        frames: list[Frame] = [frame.bytes]
        while frame.more:
            frame = receive(_NOW, copy=False)
            frames.append(frame.bytes if len(frame) < COPY_BELOW_BYTES else frame.buffer)
        return frames

    def send(self, frames: Frames) -> None:
        """Send a message. Raises zmq.Again where the client has no room, and zmq.ZMQError."""
        send = self._send
        *first, last = frames
        copy = len(last) < COPY_BELOW_BYTES
        for frame in first:
            send(frame, _NOW_AND_MORE, copy)
        send(last, _NOW, copy)
