"""Fixtures of the broker's tests: clients through each protocol, brokers in this process and their disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import FastPeer, HasUrl, Peers, SimplePeer
from kit.client.clients import PROTOCOLS, Client, Connect, connect
from kit.disk.doubles import FaultyDisk
from quothd import Broker


@pytest.fixture(params=PROTOCOLS)
def connect_client(request: pytest.FixtureRequest, peers: Peers) -> Connect:
    """Connect a client; the test runs once for each protocol."""

    def connect_it(broker: HasUrl) -> Client:
        return connect(peers, broker, request.param)

    return connect_it


@pytest.fixture
def client(connect_client: Connect, broker: BrokerProcess) -> Client:
    """Return a client of `broker`; the test runs once for each protocol."""
    return connect_client(broker)


@pytest.fixture
def simple(peers: Peers, broker: BrokerProcess) -> SimplePeer:
    """Return a client of `broker` that speaks the simple protocol."""
    return peers.simple(broker)


@pytest.fixture
def fast(peers: Peers, broker: BrokerProcess) -> FastPeer:
    """Return a client of `broker` that speaks the fast protocol."""
    return peers.fast(broker)


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    """Return the disk below all topics of `embed`."""
    disk = FaultyDisk()
    yield disk
    disk.heal()


@pytest.fixture
def embed(tmp_path: Path, disk: FaultyDisk) -> Iterator[Callable[..., Broker]]:
    """Start a broker in this process, on `disk`, with more arguments of `Broker`."""
    started: list[Broker] = []

    def start(**settings: Any) -> Broker:
        settings = {"host": "127.0.0.1", "filesystem": disk, **settings}
        started.append(Broker(tmp_path / "data", **settings).start())
        return started[-1]

    yield start
    disk.heal()
    for broker in started:
        broker.stop()


@pytest.fixture
def refuse_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """From now on refuse to start threads whose names begin like this; "" refuses none."""
    refused = ""
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if refused and thread.name.startswith(refused):
            raise RuntimeError("can't start new thread")
        real(thread)

    def refuse(names: str) -> None:
        nonlocal refused
        refused = names

    monkeypatch.setattr(threading.Thread, "start", start)
    return refuse


@pytest.fixture
def refuse(tmp_path: Path) -> Callable[..., str]:
    """Start a broker that must fail with this exit status; returns what it logs."""

    def attempt(status: int, *arguments: str, directory: Path | None = None, **settings: object) -> str:
        broker = BrokerProcess(directory or tmp_path / "data", *arguments, **settings)  # type: ignore[arg-type]
        try:
            broker.launch()
            assert broker.wait() == status, broker.stderr
            assert not broker.logged_problems, broker.stderr
            return broker.stderr
        finally:
            broker.close()

    return attempt
