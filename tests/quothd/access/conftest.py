"""A real broker whose clients have names: the identity of a peer's socket stands for its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import zmq

from kit.broker.peers import FastPeer, Peers, SimplePeer
from quothd import Broker
from quothd.access.access import OWN_PROCESS, Sender
from quothd.access.clients_file import parse_clients
from quothd.requests.pending_request import Frame

NAMES = ("alice", "bob", "carol")
STRANGE = "x" * 40
"""A key that the file does not have."""
KEYS = {name: zmq.curve_keypair()[0].decode() for name in NAMES}


class KnownClients:
    """A broker with clients. owner: a peer that may do everything, as in the broker's own process."""

    def __init__(self, directory: Path, peers: Peers, text: str, **settings: Any) -> None:
        self._peers = peers
        self._numbers = count()
        self.broker = Broker(directory, host="127.0.0.1", **settings)
        self._read(text)
        self.broker.start()
        front_end: Any = self.broker._front_end
        front_end._sender_of = _sender_of
        self.owner = peers.fast(self.broker)

    def fast(self, name: str) -> FastPeer:
        return self._peers.fast(self.broker, identity=self._identity(name))

    def simple(self, name: str) -> SimplePeer:
        return self._peers.simple(self.broker, identity=self._identity(name))

    def reload(self, text: str, **settings: Any) -> None:
        """Read another clients file, and apply it with other settings."""
        self._read(text)
        config = self.broker.config
        self.broker.reload(type(config)(**{**_values(config), **settings}))

    def _identity(self, name: str) -> bytes:
        return f"{name} {next(self._numbers)}".encode()

    def _read(self, text: str) -> None:
        self.broker._clients = parse_clients(text.format(**KEYS), "clients.toml")


def _values(config: Any) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


def _sender_of(frames: list[Frame]) -> Sender:
    """The key of the peer with an identity; a peer without one is the broker's own process."""
    identity = bytes(frames[0])
    if identity[:1] == b"\0":
        return OWN_PROCESS
    name = identity.decode().partition(" ")[0]
    return Sender(KEYS.get(name, STRANGE), "10.0.0.7")


@pytest.fixture
def known(tmp_path: Path, peers: Peers) -> Iterator[Callable[..., KnownClients]]:
    """Start a broker with the clients of a text, in which {alice} is the key of alice."""
    started: list[KnownClients] = []

    def start(text: str, **settings: Any) -> KnownClients:
        started.append(KnownClients(tmp_path / "data", peers, text, **settings))
        return started[-1]

    yield start
    for one in started:
        one.broker.stop()
