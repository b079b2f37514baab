"""Keys of a broker and its clients in files, and handshakes with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from kit.broker.peers import Context, set_key
from kit.deadlines import DEADLINE_S
from quothwire.security.key_file import Key, encode_key

SUCCEEDED = zmq.Event.HANDSHAKE_SUCCEEDED
DENIED = zmq.Event.HANDSHAKE_FAILED_AUTH
BROKEN_OFF = zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
MISMATCH = zmq.Event.HANDSHAKE_FAILED_PROTOCOL
_ENDS = SUCCEEDED | DENIED | BROKEN_OFF | MISMATCH


def new_key(name: str, *servers: Key) -> Key:
    """Make a key pair of a client of these brokers, or of a broker."""
    public, secret = (part.decode() for part in zmq.curve_keypair())
    return Key(name, public, secret, tuple(one.public_key for one in servers))


class KeyFiles:
    """The key file of a broker, and its clients file, which each change replaces atomically."""

    def __init__(self, directory: Path) -> None:
        self.server = new_key("broker")
        self.server_file = directory / "broker.key"
        self.clients_file = directory / "clients.toml"
        self._clients: dict[str, Key] = {}
        self.server_file.write_text(encode_key(self.server))
        self.server_file.chmod(0o600)
        self._write()

    @property
    def settings(self) -> dict[str, Any]:
        """The keys of the configuration that name the files."""
        return {"server_key": str(self.server_file), "clients": str(self.clients_file)}

    def add(self, name: str) -> Key:
        """Make the key of a client with all rights, and write it to the clients file."""
        key = self._clients[name] = new_key(name, self.server)
        self._write()
        return key

    def remove(self, name: str) -> None:
        del self._clients[name]
        self._write()

    def text(self) -> str:
        rights = "".join(f'{right} = ["*"]\n' for right in ("publish", "read", "group", "admin"))
        return "\n".join(
            f'[clients."{name}"]\nkey = "{key.public_key}"\n{rights}' for name, key in self._clients.items()
        )

    def _write(self) -> None:
        beside = self.clients_file.with_suffix(".new")
        beside.write_text(self.text())
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
    """Return the end of the first handshake of a socket."""
    with connecting(context, url, key, kind) as monitor:
        return end_of_handshake(monitor)
