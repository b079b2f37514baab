"""The pytest fixtures for users, in a pytest process of its own and a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

from kit.machine.commands import COMMAND_S

CONFTEST = 'pytest_plugins = ["pytest_quoth"]\n'
TEST_MS = 50
TESTS = 20


class Outcome(NamedTuple):
    """A run of pytest: its exit status, the number of tests by outcome, and its output."""

    status: int
    counts: dict[str, int]
    output: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run tests with pytest: `run(tests, conftest=...)`."""
    folder = tmp_path / "project"
    folder.mkdir()

    def run_it(tests: str, *arguments: str, conftest: str = CONFTEST) -> Outcome:
        (folder / "conftest.py").write_text(conftest)
        (folder / "test_users.py").write_text(tests)
        command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "--strict-markers", "-p",
                   "no:cacheprovider", "--basetemp", str(tmp_path / "base"), *arguments]  # fmt: skip
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, env=environment, timeout=COMMAND_S
        )
        output = done.stdout + done.stderr
        counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", output)}
        return Outcome(done.returncode, counts, output)

    return run_it


def test_each_test_has_a_broker_of_its_own(run: Run) -> None:
    outcome = run("""
import pytest

@pytest.mark.parametrize("value", [b"one", b"two"])
def test_broker_is_empty(quoth_client, value):
    assert quoth_client.topics() == []
    quoth_client.publish("orders", value)
    assert [message.value for message in quoth_client.read("orders")] == [value]
""")
    assert outcome.counts == {"passed": 2}, outcome.output


def test_other_processes_connect_to_the_broker(run: Run) -> None:
    outcome = run("""
import subprocess, sys

def test_from_outside(quoth_broker, quoth_client):
    code = "import quoth, sys; quoth.connect(sys.argv[1]).publish('orders', b'from outside')"
    subprocess.run([sys.executable, "-c", code, quoth_broker.url], check=True)
    assert quoth_client.read("orders")[0].value == b"from outside"
""")
    assert outcome.counts == {"passed": 1}, outcome.output


def test_markers_set_keys_and_the_nearest_wins(run: Run) -> None:
    outcome = run("""
import pytest

pytestmark = pytest.mark.quoth(durability="synced", count_limit=3)

def test_module(quoth_broker, quoth_client):
    assert quoth_client.publish("orders", b"x").durability == "synced"
    assert quoth_broker.config.count_limit == 3

@pytest.mark.quoth(count_limit=5)
def test_nearest(quoth_broker):
    assert (quoth_broker.config.durability, quoth_broker.config.count_limit) == ("synced", 5)
""")
    assert outcome.counts == {"passed": 2}, outcome.output


@pytest.mark.parametrize(
    ("marker", "text"),
    [
        ("durabilty='synced'", "did you mean durability?"),
        ("durability='soon'", "durability is written or synced"),
        ("'synced'", "takes keys of the configuration by name, and not dir"),
        ("dir='/tmp'", "takes keys of the configuration by name, and not dir"),
    ],
)
def test_wrong_key_is_an_error_of_one_line(run: Run, marker: str, text: str) -> None:
    outcome = run(f"""
import pytest

@pytest.mark.quoth({marker})
def test_it(quoth_broker):
    pass
""")
    assert outcome.counts == {"error": 1}, outcome.output
    assert "bad_setting: " in outcome.output
    assert text in outcome.output
    assert "Traceback" not in outcome.output


def test_no_thread_file_or_descriptor_is_left(run: Run) -> None:
    outcome = run("""
import fcntl, os, threading
import pytest

@pytest.fixture
def before():
    threads = set(threading.enumerate())
    descriptors = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    yield
    assert set(threading.enumerate()) == threads
    if descriptors:
        assert set(os.listdir("/proc/self/fd")) <= descriptors

def test_it(before, tmp_path, quoth_broker, quoth_client):
    quoth_client.publish("orders", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["quoth-data"]

def test_left_alone(before, quoth_broker, quoth_client):
    tail = quoth_client.tail("orders")
    quoth_client.publish("orders", b"x")
    assert next(iter(tail)).value == b"x"
""")
    assert outcome.counts == {"passed": 2}, outcome.output


def test_broker_can_be_stopped_and_started(run: Run) -> None:
    outcome = run("""
import quoth

def test_restart(quoth_broker, quoth_client):
    quoth_client.publish("orders", b"x")
    quoth_broker.stop()
    quoth_broker.start()
    with quoth.connect(quoth_broker.url) as client:
        assert client.read("orders")[0].value == b"x"
""")
    assert outcome.counts == {"passed": 1}, outcome.output


def test_tests_without_the_plugin_load_none_of_it(run: Run) -> None:
    tests = "import sys\ndef test_it(): assert not {'pytest_quoth', 'quothd', 'zmq'} & set(sys.modules)\n"
    outcome = run(tests, conftest="")
    assert outcome.counts == {"passed": 1}, outcome.output


@pytest.mark.alone
def test_test_with_a_broker_takes_milliseconds(run: Run, tmp_path: Path) -> None:
    """Measures a whole test that publishes and reads, with pytest's own time."""
    times = tmp_path / "times"
    conftest = f"""
import time
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    begin = time.perf_counter()
    try:
        return (yield)
    finally:
        with open({str(times)!r}, "a") as file:
            print((time.perf_counter() - begin) * 1_000, file=file)
"""
    outcome = run(
        f"""
import pytest

@pytest.mark.parametrize("number", range({TESTS}))
def test_it(quoth_client, number):
    quoth_client.publish("orders", b"x")
    assert len(quoth_client.read("orders")) == 1
""",
        conftest=CONFTEST + conftest,
    )
    assert outcome.counts == {"passed": TESTS}, outcome.output
    took = [float(line) for line in times.read_text().split()]
    print(f"{median(took):.1f} ms a test, {min(took):.1f} to {max(took):.1f}")
    assert sorted(took)[TESTS // 4] < TEST_MS, "other programs delay only some of them"
