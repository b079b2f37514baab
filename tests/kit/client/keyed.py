"""A door with CURVE in front of a broker, and the key files of its clients."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import zmq
from zmq.auth.thread import ThreadAuthenticator

from kit.broker.proxies import ProxyThread
from kit.deadlines import eventually
from kit.machine.ports import free_port
from kit.text.wording import error_of, names_python
from quoth import AuthError
from quothwire.security.key_file import Key, encode_key, read_key

DOMAIN = "clients"
AT_ONCE_S = 2.0
"""In which a refused client fails, whatever its timeout is. It takes a tenth of a second."""


def new_key(name: str, *server_keys: str) -> Key:
    """Make a pair of keys. server_keys: the public keys of its broker."""
    public, secret = zmq.curve_keypair()
    return Key(name, public.decode(), secret.decode(), server_keys)


def write_key(folder: Path, key: Key, name: str = "") -> Path:
    """Write a key file, and return its path."""
    path = folder / f"{name or key.name}.key"
    path.write_text(encode_key(key))
    path.chmod(0o600)
    return path


class KeyedDoor(ProxyThread):
    """Passes messages between a broker and the clients whose keys it knows. Starts with CURVE.

    known: their public keys, which may be changed at any time. url: its address, always the same.
    loses_answers: what the broker answers is thrown away.
    """

    def __init__(self, broker_url: str, server: Key | None, url: str = "", *known: str) -> None:
        super().__init__("door")
        self.known = set(known)
        self.loses_answers = False
        self.url = url or f"tcp://127.0.0.1:{free_port()}"
        self._context = zmq.Context()
        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(DOMAIN, credentials_provider=self)
        self._back: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self._back.set(zmq.LINGER, 0)
        self._back.connect(broker_url)
        self._poller = zmq.Poller()
        for one in (self._back, self.wakeup):
            self._poller.register(one, zmq.POLLIN)
        self._front: zmq.Socket[bytes] | None = None
        self._open(server)
        self.start()

    def callback(self, _domain: str, key: bytes) -> bool:
        """Return True for a known key. Called by the authenticator's thread."""
        return key.decode() in self.known

    def open(self, server: Key | None) -> None:
        """End all connections, and take new ones with another key of the broker; None for no keys."""
        self.order(lambda: self._open(server))

    def shut(self) -> None:
        """End all connections, and take none."""
        self.order(self._shut)

    def stop_authenticator(self) -> None:
        """Let no key be checked any more."""
        self._authenticator.stop()

    def close(self) -> None:
        """End it, with all connections."""
        super().close()
        if self._authenticator.is_alive():
            self._authenticator.stop()
        self._context.term()
        if self.url.startswith("ipc://"):
            Path(self.url.removeprefix("ipc://")).unlink(missing_ok=True)

    def _open(self, server: Key | None) -> None:
        self._shut()
        self._front = front = self._context.socket(zmq.ROUTER)
        front.set(zmq.LINGER, 0)
        if server is not None:
            front.set(zmq.CURVE_SERVER, 1)
            front.set(zmq.CURVE_SECRETKEY, server.secret_key.encode())
            front.set(zmq.ZAP_DOMAIN, DOMAIN.encode())
            front.set(zmq.ZAP_ENFORCE_DOMAIN, 1)

        def is_bound() -> bool:
            try:
                front.bind(self.url)
            except zmq.ZMQError:  # the listener of before ends in a thread of libzmq
                return False
            return True

        eventually(is_bound, f"{self.url} is free")
        self._poller.register(front, zmq.POLLIN)

    def _shut(self) -> None:
        front, self._front = self._front, None
        if front is not None:
            self._poller.unregister(front)
            front.close()

    def _run(self) -> None:
        while not self.over:
            ready = dict(self._poller.poll())
            if self.wakeup in ready:
                self.obey()
            elif self._back in ready:
                frames = self._back.recv_multipart()
                if self._front is not None and not self.loses_answers:
                    self._front.send_multipart(frames)
            elif self._front is not None and self._front in ready:
                self._back.send_multipart(self._front.recv_multipart())
        self._shut()
        self._back.close()


class Keyed(NamedTuple):
    """A door in front of a broker, and the key files of two clients, of which it knows the first."""

    door: KeyedDoor
    server: Key
    alice: Path
    mallory: Path

    def revoke(self) -> None:
        """Forget the keys of all clients, and end their connections."""
        self.door.known.clear()
        self.door.open(self.server)

    def allow(self) -> None:
        """Know the first client again."""
        self.door.known.add(read_key(self.alice).public_key)


def auth_error_of(call: Callable[..., object], *arguments: object) -> AuthError:
    """Return the error of a call that is refused at once, in one line."""
    began = time.monotonic()
    problem = error_of(call, *arguments)
    assert isinstance(problem, AuthError), problem
    assert problem.code == "auth_failed"
    assert time.monotonic() - began < AT_ONCE_S
    assert "\n" not in str(problem)
    assert not names_python(problem)
    return problem
