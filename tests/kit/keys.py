"""Keys of a broker and its clients in files, and handshakes with them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from kit.broker.peers import Context, set_key
from kit.deadlines import DEADLINE_S
from kit.zmtp import HANDSHAKE_S
from quothwire.security.key_file import Key, encode_key

SUCCEEDED = zmq.Event.HANDSHAKE_SUCCEEDED
DENIED = zmq.Event.HANDSHAKE_FAILED_AUTH
BROKEN_OFF = zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
MISMATCH = zmq.Event.HANDSHAKE_FAILED_PROTOCOL
_ENDS = SUCCEEDED | DENIED | BROKEN_OFF | MISMATCH
RIGHTS = ("publish", "read", "group", "admin")


def new_key(name: str, *servers: Key) -> Key:
    """Make a key pair of a client of these brokers, or of a broker."""
    public, secret = (part.decode() for part in zmq.curve_keypair())
    return Key(name, public, secret, tuple(one.public_key for one in servers))


class KeyFiles:
    """The key files of a broker and clients, and the clients file, which each change replaces atomically."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = count(1)
        self.server_file = directory / "broker.key"
        self.clients_file = directory / "clients.toml"
        self._clients: dict[str, tuple[Key, str]] = {}
        self.replace_server(new_key("broker"))
        self._write()

    @property
    def settings(self) -> dict[str, Any]:
        """The keys of the configuration that name the files."""
        return {"server_key": str(self.server_file), "clients": str(self.clients_file)}

    def replace_server(self, server: Key) -> None:
        """Write another key of the broker, which has effect at its restart."""
        self.server = server
        self.server_file.write_text(encode_key(server))
        self.server_file.chmod(0o600)

    def add(self, name: str, topics: str = "*") -> Key:
        """Make the key of a client, and write it to the clients file with all rights on some topics."""
        key = new_key(name, self.server)
        self.allow(key, topics)
        return key

    def allow(self, key: Key, topics: str = "*") -> None:
        """Write a client to the clients file, in place of the one of its name."""
        self._clients[key.name] = key, topics
        self._write()

    def remove(self, *names: str) -> None:
        """Remove clients from the clients file, which need not be there."""
        for name in names:
            self._clients.pop(name, None)
        self._write()

    def text(self) -> str:
        """Return the text of the clients file."""
        return "\n".join(
            f'[clients."{name}"]\nkey = "{key.public_key}"\n'
            + "".join(f'{right} = ["{topics}"]\n' for right in RIGHTS if topics)
            for name, (key, topics) in self._clients.items()
        )

    def write_key(self, key: Key, name: str = "") -> Path:
        """Write the key file of a client, which the broker need not know. name: of the file."""
        return self.write(encode_key(key), name or f"{key.name}-{next(self._numbers)}")

    def write(self, text: str | bytes, name: str = "other", mode: int = 0o600) -> Path:
        """Write a key file of any text."""
        path = self._directory / f"{name}.key"
        path.touch(mode)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)
        return path

    def _write(self) -> None:
        beside = self.clients_file.with_suffix(".new")
        beside.write_text(self.text())
        beside.chmod(0o644)
        beside.replace(self.clients_file)


@contextmanager
def connecting(
    context: Context, url: str, key: Key | None, kind: int = zmq.DEALER
) -> Iterator[zmq.Socket[bytes]]:
    """Connect a socket; yields the monitor of its handshakes."""
    with context.socket(kind) as socket:
        socket.set(zmq.LINGER, 0)
        set_key(socket, key)
        with socket.get_monitor_socket(_ENDS) as monitor:
            socket.connect(url)
            yield monitor
            socket.disable_monitor()


def end_of_handshake(monitor: zmq.Socket[bytes], seconds: float = DEADLINE_S) -> zmq.Event:
    assert monitor.poll(int(seconds * 1_000)), f"no handshake has ended within {seconds:g} s"
    return zmq.Event(recv_monitor_message(monitor)["event"])


def handshake(context: Context, url: str, key: Key | None, kind: int = zmq.DEALER) -> zmq.Event:
    """Return the end of the first handshake of a socket that is not broken off because it took too long."""
    with connecting(context, url, key, kind) as monitor:
        while True:
            began = time.monotonic()
            end = end_of_handshake(monitor)
            if end != BROKEN_OFF or time.monotonic() - began < HANDSHAKE_S:
                return end
