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

USERS = """
import fcntl, os, subprocess, sys, threading
import pytest
import quoth

@pytest.mark.parametrize("value", [b"one", b"two"])
def test_each_test_has_a_broker_of_its_own(quoth_client, value):
    assert quoth_client.topics() == []
    quoth_client.publish("orders", value)
    assert [message.value for message in quoth_client.read("orders")] == [value]

def test_other_processes_connect(quoth_broker, quoth_client):
    code = "import quoth, sys; quoth.connect(sys.argv[1]).publish('orders', b'from outside')"
    subprocess.run([sys.executable, "-c", code, quoth_broker.url], check=True)
    assert quoth_client.read("orders")[0].value == b"from outside"

@pytest.mark.quoth(durability="synced", count_limit=3)
class TestMarkers:
    def test_marker_of_a_class_sets_keys(self, quoth_broker, quoth_client):
        assert quoth_client.publish("orders", b"x").durability == "synced"
        assert quoth_broker.config.count_limit == 3

    @pytest.mark.quoth(count_limit=5)
    def test_nearest_marker_wins(self, quoth_broker):
        assert (quoth_broker.config.durability, quoth_broker.config.count_limit) == ("synced", 5)

def descriptors():
    return set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()

@pytest.fixture
def before():
    threads, opened = set(threading.enumerate()), descriptors()
    yield
    for thread in set(threading.enumerate()) - threads:
        thread.join(20)
    assert set(threading.enumerate()) <= threads
    assert descriptors() <= opened

def test_no_thread_file_or_descriptor_is_left(before, tmp_path, quoth_broker, quoth_client):
    quoth_client.publish("orders", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["quoth-data"]

def test_none_is_left_of_a_reader_that_is_left_alone(before, quoth_broker, quoth_client):
    tail = quoth_client.tail("orders")
    quoth_client.publish("orders", b"x")
    assert next(iter(tail)).value == b"x"

def test_broker_can_be_stopped_and_started(quoth_broker, quoth_client):
    quoth_client.publish("orders", b"x")
    quoth_broker.stop()
    quoth_broker.start()
    with quoth.connect(quoth_broker.url) as client:
        assert client.read("orders")[0].value == b"x"
"""
WRONG = {
    "durabilty='synced'": "did you mean durability?",
    "durability='soon'": "durability is written or synced",
    "'synced'": "takes keys of the configuration by name, and not dir",
    "dir='/tmp'": "takes keys of the configuration by name, and not dir",
}
"""Arguments of the marker, and what the error says."""


class Outcome(NamedTuple):
    """The number of tests by outcome, and the output."""

    counts: dict[str, int]
    output: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run tests with pytest: `run(tests, conftest=...)`."""
    folder = tmp_path / "project"
    folder.mkdir()

    def run_it(tests: str, conftest: str = CONFTEST) -> Outcome:
        (folder / "conftest.py").write_text(conftest)
        (folder / "test_users.py").write_text(tests)
        command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "--strict-markers", "-p",
                   "no:cacheprovider", "--basetemp", str(tmp_path / "base")]  # fmt: skip
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, env=environment, timeout=COMMAND_S
        )
        output = done.stdout + done.stderr
        counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", output)}
        return Outcome(counts, output)

    return run_it


def test_fixtures_and_markers_do_what_the_documentation_says(run: Run) -> None:
    outcome = run(USERS)
    assert outcome.counts == {"passed": USERS.count("def test_") + 1}, outcome.output


def test_wrong_key_is_an_error_of_one_line(run: Run) -> None:
    tests = [
        f"@pytest.mark.quoth({marker})\ndef test_{number}(quoth_broker): pass\n"
        for number, marker in enumerate(WRONG)
    ]
    outcome = run("import pytest\n" + "".join(tests))
    assert outcome.counts == {"error": len(WRONG)}, outcome.output
    for part, text in zip(re.split("ERROR at setup of", outcome.output)[1:], WRONG.values(), strict=True):
        assert "bad_setting: " in part
        assert text in part
    assert "Traceback" not in outcome.output


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
