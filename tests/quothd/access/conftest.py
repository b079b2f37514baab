"""Fixtures of the tests of rights and quotas: brokers with clients of a given file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.broker.peers import FastPeer, Peers, SimplePeer
from kit.keys import KeyFiles, new_key
from quothd import Broker
from quothd.config.config import Config

NAMES = ("alice", "bob", "carol", "mallory")


class KnownClients:
    """A broker with clients. owner: a peer that may do everything, in the broker's own process."""

    def __init__(self, directory: Path, peers: Peers, text: str, **settings: Any) -> None:
        self._peers = peers
        self._files = KeyFiles(directory)
        self.keys = {name: new_key(name, self._files.server) for name in NAMES}
        self._write(text)
        given = {**self._files.settings, **settings}
        self.broker = Broker(directory / "data", host="127.0.0.1", **given).start()
        inproc = next(url for url in self.broker.urls if url.startswith("inproc:"))
        self.owner = peers.keep(FastPeer(self.broker.context, inproc))

    def fast(self, name: str) -> FastPeer:
        return self._peers.fast(self.broker.urls[0], key=self.keys[name])

    def simple(self, name: str) -> SimplePeer:
        return self._peers.simple(self.broker.urls[0], key=self.keys[name])

    def reload(self, text: str, **settings: Any) -> None:
        """Write another clients file, and apply it with other settings."""
        self._write(text)
        config = self.broker.config
        values = {name: getattr(config, name) for name in Config.__dataclass_fields__}
        self.broker.reload(Config(**{**values, **settings}))

    def _write(self, text: str) -> None:
        publics = {name: key.public_key for name, key in self.keys.items()}
        beside = self._files.clients_file.with_suffix(".new")
        beside.write_text(text.format(**publics))
        beside.replace(self._files.clients_file)


@pytest.fixture
def known(tmp_path: Path, peers: Peers) -> Iterator[Callable[..., KnownClients]]:
    """Start a broker with the clients of a text, in which {alice} is the public key of alice."""
    started: list[KnownClients] = []

    def start(text: str, **settings: Any) -> KnownClients:
        started.append(KnownClients(tmp_path, peers, text, **settings))
        return started[-1]

    yield start
    peers.close()
    for one in started:
        one.broker.stop()
