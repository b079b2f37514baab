"""Fixtures of the tests of keys and rights: key files, and real brokers that require keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq

from kit.broker.peers import FastPeer, Peers, SimplePeer
from kit.keys import KeyFiles
from quothd import Broker
from quothd.access.access import OWN_PROCESS, Sender
from quothd.requests.pending_request import Frame

NAMES = ("alice", "bob", "carol")
STRANGE = "x" * 40
"""A key that the file does not have."""
KEYS = {name: zmq.curve_keypair()[0].decode() for name in NAMES}


@pytest.fixture
def keys(tmp_path: Path) -> KeyFiles:
    """Return the key files of a broker that has no client yet."""
    return KeyFiles(tmp_path)


@pytest.fixture
def embed_with_keys(embed: Callable[..., Broker], keys: KeyFiles) -> Callable[..., Broker]:
    """Start a broker in this process that requires keys."""

    def start(**settings: Any) -> Broker:
        return embed(**keys.settings, **settings)

    return start


class KnownClients:
    """A broker with clients. Peers reach it in its process: the identity of a socket stands for its key.

    owner: a peer that may do everything, as in the broker's own process.
    """

    def __init__(self, directory: Path, keys: KeyFiles, text: str, **settings: Any) -> None:
        self._clients_file = keys.clients_file
        self._write(text)
        self.broker = Broker(directory, **keys.settings, **settings).start()
        self._peers = Peers(self.broker.context)
        front_end: Any = self.broker._front_end
        front_end._sender_of = _sender_of
        self.owner = self._peers.fast(self.broker)

    def fast(self, name: str) -> FastPeer:
        return self._peers.fast(self.broker, identity=name.encode())

    def simple(self, name: str) -> SimplePeer:
        return self._peers.simple(self.broker, identity=name.encode())

    def reload(self, text: str, **settings: Any) -> None:
        """Apply another clients file, and other settings."""
        self._write(text)
        self.broker.reload(replace(self.broker.config, **settings))

    def close(self) -> None:
        self._peers.close()
        self.broker.stop()

    def _write(self, text: str) -> None:
        self._clients_file.write_text(text.format(**KEYS))


def _sender_of(frames: list[Frame]) -> Sender:
    """The key of the peer with an identity; a peer without one is the broker's own process."""
    identity = bytes(frames[0])
    return OWN_PROCESS if identity[:1] == b"\0" else Sender(KEYS.get(identity.decode(), STRANGE), "10.0.0.7")


@pytest.fixture
def known(tmp_path: Path, keys: KeyFiles) -> Iterator[Callable[..., KnownClients]]:
    """Start a broker with the clients of a text, in which {alice} is the key of alice."""
    started: list[KnownClients] = []

    def start(text: str, **settings: Any) -> KnownClients:
        started.append(KnownClients(tmp_path / "data", keys, text, **settings))
        return started[-1]

    yield start
    for one in started:
        one.close()
