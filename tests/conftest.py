"""Fixtures of all tests: a seed, and real brokers with their peers, which always end with the test."""

from __future__ import annotations

import gc
import os
import random
import re
import secrets
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from hypothesis import HealthCheck, settings
from xdist.workermanage import NodeManager  # type: ignore[import-untyped]

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Context, Peers
from kit.deadlines import DEADLINE_S
from kit.machine.commands import Command, Running
from kit.machine.processes import hear_interrupts
from kit.spark.sparks import DRIVER_OPTIONS, JAVA_OPTIONS, java_is_there, spark_home

SEPARATE = {"alone": "mark.alone", "spark": "spark", "system": "mark.system"}
"""Marks of tests that are run by themselves, and the text that each file with such a test has."""

SLOW = frozenset(("test_check.py", "test_house.py", "test_packaging.py", "test_site.py", "test_tour.py"))
"""Files of tests that take seconds each."""


def pytest_configure() -> None:
    """Begin as in the foreground, wherever the tests are started; let Ctrl-C end workers that hang soon.

    Hypothesis does not measure the time of examples: other programs of the machine take most of it.
    """
    hear_interrupts()
    NodeManager.EXIT_TIMEOUT = 2
    settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("unhurried")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files without a selected test: to load all takes longer than to run a few tests."""
    wanted, _, rest = str(config.getoption("markexpr")).partition(" ")
    if wanted not in SEPARATE or rest.startswith("or ") or not collection_path.match("test_*.py"):
        return None
    return SEPARATE[wanted] not in collection_path.read_text(encoding="utf-8") or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests, which share fixtures: the last tests of all workers have to be short."""
    for mark, text in SEPARATE.items():
        for path in {item.path for item in items if item.get_closest_marker(mark)}:
            assert text in path.read_text("utf-8"), (
                f"{path} has no {text}: the tests with that mark would be skipped"
            )
    items.sort(key=lambda item: item.path.name not in SLOW)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collection, which takes a third of the time, also later on."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Print how the process of a worker has crashed, which pytest does not say."""
    if error:
        status = node.gateway._io.popen.wait(DEADLINE_S)
        reporter = node.config.pluginmanager.getplugin("terminalreporter")
        reporter.write_line(f"\nworker {node.gateway.id} has ended with status {status} (-9: by signal 9)")


@pytest.fixture(scope="session")
def context() -> Iterator[Context]:
    """Return the ZeroMQ context of all peers, whose sockets wait for no longer than a test does."""
    with zmq.Context() as context:
        for option in (zmq.SNDTIMEO, zmq.RCVTIMEO):
            context.setsockopt(option, int(DEADLINE_S * 1_000))
        yield context


@pytest.fixture
def peers(context: Context) -> Iterator[Peers]:
    """Make peers of a broker."""
    peers = Peers(context)
    yield peers
    peers.close()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start a broker process: `start_broker(worker_timeout=0.01)`; see `BrokerProcess`."""
    started: list[BrokerProcess] = []

    def start(*arguments: str, directory: Path | None = None, **settings: Any) -> BrokerProcess:
        started.append(BrokerProcess(directory or tmp_path / "data", *arguments, **settings))
        return started[-1].start()

    yield start
    for broker in started:
        broker.close()
    for broker in started:
        broker.end()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Start a broker process with default settings for all tests of a file. Use `topic` for names."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data").running() as broker:
        yield broker


@pytest.fixture
def running() -> Iterator[list[Running]]:
    """Collect commands, and kill them at the end of the test."""
    started: list[Running] = []
    yield started
    for one in started:
        if one.process.poll() is None:
            os.kill(one.process.pid, signal.SIGKILL)
        one.process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def alone(running: list[Running]) -> Command:
    """`quoth` without a broker."""
    return Command("", running)


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set up Java so that Spark starts quickly from now on. Skips the test without Java."""
    if not java_is_there():
        pytest.skip("there is no Java 17 or newer: apt-get install openjdk-17-jre-headless")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_HOME", str(spark_home(tmp_path_factory.mktemp("java"))))
        environment.setenv("SPARK_SUBMIT_OPTS", DRIVER_OPTIONS)
        environment.setenv("SPARK_LAUNCHER_OPTS", JAVA_OPTIONS)
        yield


@pytest.fixture
def seed() -> int:
    """Return the seed of this test's random choices. QUOTH_SEED=12345 repeats those of a failed run."""
    chosen = int(os.environ.get("QUOTH_SEED") or secrets.randbits(32))
    print(f"QUOTH_SEED={chosen}")
    return chosen


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Return a random generator with the seed."""
    return random.Random(seed)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Return a topic's name that no other test has."""
    return re.sub(r"[^\w.-]+", "-", request.node.name)[-150:]
