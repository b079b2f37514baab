"""Fixtures of the client's tests: clients and proxies, which are closed at the end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Context
from kit.broker.proxies import Meddler, Wire
from kit.client.keyed import KeyedBroker
from kit.client.loops import TWINS
from kit.client.records import Connect
from kit.keys import KeyFiles
from kit.spark.sparks import session
from quoth import Client, Transaction

BLOCKING_ONLY = ("_examples", "_kills", "_producer_faults")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests with the blocking client and with its asyncio twin, but for `BLOCKING_ONLY`."""
    module = metafunc.module.__name__.rpartition(".")[2]
    of_both = module.startswith("test_client_") and not module.endswith(BLOCKING_ONLY)
    if of_both and "twin" in metafunc.fixturenames:
        metafunc.parametrize("twin", TWINS.values(), ids=TWINS, indirect=True)


@pytest.fixture
def twin(request: pytest.FixtureRequest) -> Connect:
    """Connects a client: the blocking one, or its asyncio twin in tests for both."""
    chosen: Connect = getattr(request, "param", quoth.connect)
    return chosen


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes what was entered, last first."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def connect(stack: ExitStack, twin: Connect) -> Connect:
    """Connects clients: `connect(broker, timeout=3.0)`."""

    def connect_it(broker: Any, **options: Any) -> Client:
        at = broker.url if isinstance(broker, (BrokerProcess, Wire, Meddler)) else broker
        return stack.enter_context(twin(at, **options))

    return connect_it


@pytest.fixture
def own_broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker of this test alone. At `broker` fetches of closed clients stay for up to half a minute."""
    return start_broker()


@pytest.fixture
def own_client(own_broker: BrokerProcess, connect: Connect) -> Client:
    """A client of `own_broker`."""
    return connect(own_broker)


@pytest.fixture
def transaction(client: Client, topic: str) -> Transaction:
    """A transaction on a topic of `client`."""
    return client.transaction(topic, "app", 0)


@pytest.fixture
def client(connect: Connect, broker: BrokerProcess) -> Client:
    """A client of `broker`."""
    return connect(broker)


@pytest.fixture
def pooled(stack: ExitStack, broker: BrokerProcess) -> Client:
    """A blocking client of `broker`, for tests of its pool."""
    return stack.enter_context(quoth.connect(broker.url))


@pytest.fixture
def wire(stack: ExitStack, broker: BrokerProcess) -> Wire:
    """A wire to `broker`."""
    return stack.enter_context(Wire(broker.url))


@pytest.fixture
def meddler(stack: ExitStack, context: Context, broker: BrokerProcess) -> Meddler:
    """A proxy to `broker` that can lose and refuse requests and replies."""
    return stack.enter_context(Meddler(context, broker.url))


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for calls that wait."""
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture
def impatient(connect: Connect, meddler: Meddler) -> Client:
    """A client behind the meddler that sends a request again after a tenth of a second."""
    client = connect(meddler)
    client._timing.resend = 0.1
    return client


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The Spark session: two tasks at a time, three attempts each."""
    directory = tmp_path_factory.mktemp("spark")
    with session("local[2,3]", directory) as spark:
        yield spark
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(params=["tcp", "ipc"])
def keyed(request: pytest.FixtureRequest, start_broker: StartBroker, tmp_path: Path) -> KeyedBroker:
    """A broker with keys, over TCP and over a path."""
    files = KeyFiles(tmp_path)
    if request.param == "tcp":
        return KeyedBroker(start_broker, files)
    url = f"ipc://{tmp_path}/door"
    return KeyedBroker(start_broker, files, url, listen=url)
