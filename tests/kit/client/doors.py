"""Doors in front of a broker that want keys, as CURVE sockets do, and key files for their clients.

A URL and key files are all that clients know of them.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import zmq
from zmq.auth.thread import ThreadAuthenticator

from kit.machine.ports import free_port
from quothwire.closing import Closeable

DOMAIN = "quoth"


class Pair(NamedTuple):
    """The public and the secret key of a client or a broker, in Z85."""

    public: str
    secret: str


def new_pair() -> Pair:
    """Return another pair of keys."""
    return Pair(*(key.decode() for key in zmq.curve_keypair()))


class Door(Closeable):
    """A CURVE socket in front of a broker: messages of clients whose key is allowed pass to it.

    allowed: public keys. checks: without it nothing answers whether a key is allowed, as when an
    authenticator has died.
    """

    def __init__(
        self, broker_url: str, pair: Pair, allowed: set[str], port: int, *, checks: bool = True
    ) -> None:
        self.url = f"tcp://127.0.0.1:{port}"
        self.allowed = allowed
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._authenticator = ThreadAuthenticator(self._context) if checks else None
        if self._authenticator:
            self._authenticator.start()
            self._authenticator.configure_curve_callback(DOMAIN, self)
        self._end = self._context.socket(zmq.PAIR)
        self._end.bind("inproc://end")
        self._thread = threading.Thread(target=self._pass, args=(broker_url, pair), name="door", daemon=True)
        self._ready = threading.Event()
        self._thread.start()
        assert self._ready.wait(20), "the door does not open"

    def callback(self, _domain: str, key: bytes) -> bool:
        """Answer the authenticator."""
        return key.decode() in self.allowed

    def close(self) -> None:
        self._end.send(b"TERMINATE")
        self._thread.join()
        self._end.close(linger=0)
        if self._authenticator:
            self._authenticator.stop()
        self._context.term()

    def _pass(self, broker_url: str, pair: Pair) -> None:
        front, back = self._context.socket(zmq.ROUTER), self._context.socket(zmq.DEALER)
        end = self._context.socket(zmq.PAIR)
        end.connect("inproc://end")
        for socket in (front, back):
            socket.set(zmq.LINGER, 0)
            socket.set(zmq.SNDHWM, 0)
            socket.set(zmq.RCVHWM, 0)
        front.set(zmq.CURVE_SERVER, 1)
        front.set(zmq.CURVE_SECRETKEY, pair.secret.encode())
        front.set(zmq.ZAP_DOMAIN, DOMAIN.encode())
        front.set(zmq.ZAP_ENFORCE_DOMAIN, 1)
        front.bind(self.url)
        back.connect(broker_url)
        self._ready.set()
        zmq.proxy_steerable(front, back, None, end)
        for socket in (front, back, end):
            socket.close()


class Doors:
    """The doors of a broker, one open at a time, all at one address. pair: of the broker; alice: a client."""

    def __init__(self, broker_url: str, directory: Path) -> None:
        self.broker_url = broker_url
        self.port = free_port()
        self.url = f"tcp://127.0.0.1:{self.port}"
        self.pair, self.alice = new_pair(), new_pair()
        self._directory = directory
        self._open = ExitStack()

    def open(self, *allowed: Pair, pair: Pair | None = None, checks: bool = True) -> None:
        """Close the door, and open another one, for these clients. All connections end with it."""
        self.close()
        keys = {one.public for one in allowed}
        self._open.enter_context(Door(self.broker_url, pair or self.pair, keys, self.port, checks=checks))

    def close(self) -> None:
        """Close the door."""
        self._open.close()

    def key_file(self, client: Pair | None = None, *servers: Pair, name: str = "alice") -> Path:
        """Write a key file. servers: of the broker, by default its own."""
        labels = zip(("server-key", "server-key-next"), servers or (self.pair,), strict=False)
        metadata = [f'{label} = "{one.public}"' for label, one in labels]
        public, secret = client or self.alice
        lines = ["[metadata]", f'name = "{name}"', *metadata, "[curve]", f'public-key = "{public}"']
        return self.write("\n".join([*lines, f'secret-key = "{secret}"', ""]))

    def write(self, text: str | bytes, mode: int = 0o600) -> Path:
        """Write a file of any text."""
        path = self._directory / f"{len(list(self._directory.iterdir()))}.key"
        path.touch(mode)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)
        return path
