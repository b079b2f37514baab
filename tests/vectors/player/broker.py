"""The broker of a session: a ROUTER at a tcp port that is its own, which can go away and come back."""

from __future__ import annotations

import random
import socket
import time

import zmq

LINGER_MS = 500
"""For which answers that were sent before it goes away may still be written."""
AGAIN_S = 0.01
PORTS = range(30_000, 32_000)
"""Below those that systems give away: clients of a broker that is gone meet no other program there."""
BIND_S = 5.0


class ScriptedBroker:
    """A socket that does nothing by itself. Belongs to one thread."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._context = context
        self._reservation = _reserve()
        self.url = f"tcp://127.0.0.1:{self._reservation.getsockname()[1]}"
        self.socket: zmq.Socket[bytes] | None = None
        self.come_back()

    def close(self) -> None:
        """Go away for good: others may have the port."""
        self.go()
        self._reservation.close()

    def send(self, message: list[bytes]) -> None:
        """Send an answer. One to a connection that is no longer there is lost, as a broker's is."""
        if self.socket is not None:
            self.socket.send_multipart(message)

    def receive(self) -> list[bytes]:
        """Return a message that is there."""
        assert self.socket is not None
        return self.socket.recv_multipart()

    def go(self) -> None:
        """Close all connections, and accept none."""
        if self.socket is not None:
            self.socket.close(linger=LINGER_MS)
            self.socket = None

    def come_back(self) -> None:
        """Accept connections at the same address again."""
        until = time.monotonic() + BIND_S
        while self.socket is None:
            try:
                self.socket = self._bound(self.url)
            except zmq.ZMQError:  # libzmq closes the former one in a thread of its own
                if time.monotonic() > until:
                    raise
                time.sleep(AGAIN_S)

    def _bound(self, url: str) -> zmq.Socket[bytes]:
        router: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        try:
            router.bind(url)
        except zmq.ZMQError:
            router.close(linger=0)
            raise
        return router


def _reserve() -> socket.socket:
    """Reserve a port of `PORTS` that is free, by a UDP socket of the same number, until that is closed.

    Sessions run beside each other, and a broker that is gone does not listen.
    """
    while True:
        reservation = socket.socket(type=socket.SOCK_DGRAM)
        try:
            reservation.bind(address := ("127.0.0.1", random.choice(PORTS)))
            with socket.socket() as listener:
                listener.bind(address)
        except OSError:
            reservation.close()
        else:
            return reservation
