"""The ROUTER socket, with as little between it and the front end as can be.

Every request and every reply passes here, frame by frame, so what a frame costs is paid ten times a call. Two
things make most of it: flags that are members of an enumeration, which is asked for a bit at each frame, and
a question to the socket behind each frame whether there is another one. Without them a call costs 9 us less,
of some 60 for a publish of 100 records.
"""

from __future__ import annotations

import zmq

from quothwire.protocol.binary_codec import Frames

COPY_BELOW_BYTES = 64 * 2**10
"""Below this libzmq copies faster than Python hands a buffer over."""
_NOW = int(zmq.NOBLOCK)
_NOW_AND_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)

Frame = bytes | memoryview


class Router:
    """Receives and sends whole messages, never waiting. Owned by its thread."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket

    def receive(self) -> list[Frame] | None:
        """The frames of the next message, None if there is none; large ones stay in libzmq's memory."""
        receive = self.socket.recv
        try:
            frame = receive(_NOW, copy=False)
        except zmq.Again:
            return None
        frames: list[Frame] = [frame.bytes]
        while frame.more:
            frame = receive(_NOW, copy=False)
            frames.append(frame.bytes if len(frame) < COPY_BELOW_BYTES else frame.buffer)
        return frames

    def send(self, frames: Frames) -> None:
        """Send a message. Raises zmq.Again where the client has no room, and zmq.ZMQError."""
        send = self.socket.send
        *first, last = frames
        copy = len(last) < COPY_BELOW_BYTES
        for frame in first:
            send(frame, _NOW_AND_MORE, copy)
        send(last, _NOW, copy)
