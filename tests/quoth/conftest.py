"""What the tests of the client share: clients and proxies that are closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

import quoth
from kit.brokers import BrokerProcess, StartBroker
from kit.clocks import JumpingClock
from kit.peers import Context
from kit.proxies import Meddler, Wire
from quoth import Client, channel, deadline

Connect = Callable[..., Client]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes what was entered, last first."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def connect(stack: ExitStack) -> Connect:
    """Connects clients: `connect(broker, timeout=3.0)`."""

    def connect_it(broker: Any, **options: Any) -> Client:
        at = broker.url if isinstance(broker, (BrokerProcess, Wire, Meddler)) else broker
        return stack.enter_context(quoth.connect(at, **options))

    return connect_it


@pytest.fixture
def quiet_broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker at which nobody waits. At `broker` clients that have gone do, for up to half a minute."""
    return start_broker()


@pytest.fixture
def client(connect: Connect, broker: BrokerProcess) -> Client:
    """A client of `broker`."""
    return connect(broker)


@pytest.fixture
def wire(stack: ExitStack, broker: BrokerProcess) -> Wire:
    """A wire to `broker`."""
    return stack.enter_context(Wire(broker.url))


@pytest.fixture
def meddler(stack: ExitStack, context: Context, broker: BrokerProcess) -> Meddler:
    """One who meddles with what is said to `broker`."""
    return stack.enter_context(Meddler(context, broker.url))


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for calls that wait."""
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> JumpingClock:
    """The clock of all calls, which look at it at least every tenth of a second."""
    clock = JumpingClock()
    monkeypatch.setattr(channel, "RESEND_S", 0.1)
    for module in (channel, deadline):
        monkeypatch.setattr(module, "time", clock)
    return clock
