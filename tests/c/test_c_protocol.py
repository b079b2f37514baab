"""The fast client in C of PROTOCOL.md, built without a change, against a real broker."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import FastPeer, Peers
from kit.machine.commands import COMMAND_S
from kit.machine.cprograms import SANITIZERS, can_sanitize, compiled, require_compiler
from quothwire.protocol.messages import DeleteTopic

PROTOCOL = Path(__file__).resolve().parents[2] / "client" / "PROTOCOL.md"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g")
LINES_MAX = 40


@pytest.fixture(scope="module")
def example() -> str:
    """The source of the program in the document."""
    (block,) = re.findall(r"```c\n(.*?)```", PROTOCOL.read_text(), re.DOTALL)
    return str(block)


@pytest.fixture(scope="module")
def program(example: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built; with sanitizers, if this machine has them."""
    require_compiler("zmq.h", "xxhash.h")
    program = tmp_path_factory.mktemp("c") / "fast"
    options = (*STRICT, *(SANITIZERS if can_sanitize() else ()))
    assert compiled(example, *options, program=program) is None
    return program


def run(program: Path, url: str) -> subprocess.CompletedProcess[str]:
    """Run it. Memory that the end of the process frees is no leak."""
    return subprocess.run(
        [program, url],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
        env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},
    )


def test_the_fast_client_in_the_protocol_is_short_and_uses_no_code_of_quoth(example: str) -> None:
    lines = example.splitlines()
    assert len(lines) <= LINES_MAX
    assert max(map(len, lines)) <= 110
    assert "quoth" not in example
    assert set(re.findall(r"#include <(.*)>", example)) == {"stdio.h", "string.h", "xxhash.h", "zmq.h"}


def test_the_fast_client_in_the_protocol_publishes_a_batch_and_checks_the_one_that_it_fetches(
    program: Path, broker: BrokerProcess, peers: Peers
) -> None:
    fast: FastPeer = peers.fast(broker)
    first, second = (run(program, broker.url) for _ in range(2))
    assert (first.returncode, first.stderr, second.returncode) == (0, "", 0)
    pointers = [record.pointer for record in fast.read_all("from-c")]
    assert first.stdout == f"published {pointers[0]}\n{pointers[0]} hello\n"
    assert second.stdout == f"published {pointers[1]}\n{pointers[0]} hello\n"
    assert fast.fetch("from-c").values == [b"hello", b"hello"]


def test_the_fast_client_in_the_protocol_refuses_a_batch_that_is_not_its_own(
    program: Path, broker: BrokerProcess, peers: Peers
) -> None:
    fast: FastPeer = peers.fast(broker)
    run(program, broker.url)
    fast.call(DeleteTopic(), "from-c")
    fast.publish("from-c", [b"two", b"records"])
    assert run(program, broker.url).returncode == 4, "the body's checksum is of more bytes"
