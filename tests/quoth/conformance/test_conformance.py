"""The Python clients pass the conformance kit, whose player finds what a client does wrong."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.client.conformance import PLAYER, PYTHON_DRIVER, play, python_driver
from kit.text.house import packages_imported
from quothwire.errors import CODES
from quothwire.protocol.messages import Operation

Session = dict[str, Any]
FILES = sorted(PLAYER.parent.glob("sessions/*.json"))
SESSIONS: list[Session] = [
    session for path in FILES for session in json.loads(path.read_text(encoding="utf-8"))["sessions"]
]
DOUBLES_EXACT = 2**53 - 1

FAULTS = {
    "retries a final error": (
        "from quoth.core import request_state as r\n"
        "r.RequestState.__init__.__kwdefaults__['retried'] = r.RETRIED | {'storage_failed'}",
        "answers: storage_failed is final",
        "where (it has to send nothing|nothing is expected)",
    ),
    "sends other bytes again": (
        "from quoth.core import request_state as r; was = r.RequestState.is_to_be_sent\n"
        "def other(self, now, **named):\n"
        "    again = was(self, now, **named)\n"
        "    if again: self.frames[3] = self.frames[3][:-8] + b'another1'\n"
        "    return again\n"
        "r.RequestState.is_to_be_sent = other",
        "publish: busy, then stored",
        "a batch whose body checksum is",
    ),
    "numbers its batches wrongly": (
        "from quothwire import batch; was = batch.encode\n"
        "batch.encode = lambda *a, **k: was(*a, **{**k, 'sequence': 3})",
        "publish: sequences without a hole",
        "batch.sequence is 3, where '1' is expected",
    ),
    "checks no body": (
        "from quothwire import batch; was = batch.decode\n"
        "def unchecked(raw, log=0):\n"
        "    header = batch.parse_header(raw, log)\n"
        "    return batch.DecodedBatch(header, [b'?'] * header.records, None, None)\n"
        "batch.decode = unchecked",
        "read: a damaged body",
        r"results\[0\]\.records\[0\]\.value is '3f'",
    ),
    "reports no gap": (
        "from quoth import reader; reader.BatchCursor._skip_damage = lambda self, last, *_: "
        "setattr(self, 'after', max(self.after, last))",
        "read: a damaged body",
        r"results\[0\]\.gaps is \[\]",
    ),
    "returns an error as a result": (
        "driver.Calls._publish = driver.Calls._ping",
        "answers: internal is final",
        "the client does not send publish",
    ),
    "dies": ("import os; driver.Calls._ping = lambda *_: os._exit(7)", "answers: hello of*", "has ended"),
    "prints anything": ("print('hello')", "answers: hello", "no JSON object: b'hello'"),
}
"""Code that a driver executes first, a session, and a pattern of what the player says."""


@pytest.mark.parametrize("client", ["blocking", "aio"])
def test_python_clients_pass_all_sessions(client: str) -> None:
    played = play(python_driver(client), "--strict")
    played.hold()
    assert played.of("PASS") == {session["name"] for session in SESSIONS}


def changed_driver(code: str, folder: Path) -> list[str]:
    """Return the command of a driver that executes some code first."""
    program = folder / "changed.py"
    lines = [
        "import asyncio, sys",
        f"sys.path.insert(0, {str(PYTHON_DRIVER.parent)!r})",
        "import driver",
        code,
    ]
    program.write_text("\n".join([*lines, "asyncio.run(driver.main())"]))
    return [sys.executable, str(program)]


@pytest.mark.parametrize("fault", FAULTS)
def test_player_finds_what_a_client_does_wrong(fault: str, tmp_path: Path) -> None:
    code, session, reason = FAULTS[fault]
    played = play(changed_driver(code, tmp_path), "--only", session)
    (failed,) = played.of("FAIL")
    assert played.status == 1
    assert re.search(reason, failed)


def test_player_gives_more_time_to_a_call_that_was_over_before_its_request_came(tmp_path: Path) -> None:
    code = (
        "was = driver.Calls.make\n"
        "async def slow(self, given):\n"
        "    return await was(self, given) if given['timeout_ms'] > 400 else {'error': 'timed_out'}\n"
        "driver.Calls.make = slow"
    )
    driver, session = changed_driver(code, tmp_path), "publish: the disk is full"
    assert play(driver, "--only", session).of("PASS") == {session}


def test_player_skips_what_a_driver_does_not_support(tmp_path: Path) -> None:
    program = tmp_path / "unable.py"
    program.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    print(json.dumps({'session': json.loads(line)['session'], 'unsupported': 'calls'}), flush=True)"
    )
    driver, chosen = [sys.executable, str(program)], ("--only", "topics: *")
    played = play(driver, *chosen)
    assert (played.status, len(played.of("SKIP")), played.of("FAIL")) == (0, len(played.lines), set())
    assert play(driver, *chosen, "--strict").status == 1


NOT_OF_APPLICATIONS = {"metrics"}
"""What asks for these is a monitor of brokers, no client library."""


def test_sessions_cover_all_operations_and_each_code_that_is_tried_again() -> None:
    assert len({session["name"] for session in SESSIONS}) == len(SESSIONS)
    steps = [step for session in SESSIONS for step in session["script"]]
    calls = {call["call"] for session in SESSIONS for call in session["calls"]}
    operations = {step["expect"] for step in steps if "expect" in step} | (calls & {"hello", "ping"})
    assert operations == {operation.name.lower() for operation in Operation} - NOT_OF_APPLICATIONS
    codes = {step["code"] for step in steps if "error" in step}
    assert {code for code, row in CODES.items() if row.retryable} - codes == {"timed_out", "disconnected"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_sessions_hold_no_number_that_a_double_cannot_hold(path: Path) -> None:
    numbers: list[int] = []
    json.loads(path.read_text(encoding="utf-8"), parse_int=lambda digits: numbers.append(int(digits)))
    assert max(map(abs, numbers)) <= DOUBLES_EXACT


def test_kit_can_be_copied_without_anything_else_of_quoth() -> None:
    sources = [PLAYER, *PLAYER.parent.glob("player/*.py")]
    assert len(sources) > len(FILES)
    found = {
        name
        for path in sources
        for _, name in packages_imported(ast.parse(path.read_text(encoding="utf-8")))
        if name not in sys.stdlib_module_names
    }
    assert found == {"msgpack", "player", "xxhash", "zmq"}
