"""How commands end: the exit status, two lines on stderr, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from kit.deadlines import DEADLINE_S
from kit.machine.commands import Command
from quoth import ProducerError, QuothError
from quothcli import application
from quothcli.cli.exit_status import Status, guarded, say, status_of
from quothwire.errors import CODES, error

STATUSES = {
    **dict.fromkeys(("bad_request", "bad_topic", "bad_pointer", "bad_setting"), Status.USAGE),
    **dict.fromkeys(("unknown_topic", "unknown_record"), Status.NOT_FOUND),
    **dict.fromkeys(("timed_out", "disconnected", "closed"), Status.TIMED_OUT),
}


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_an_exit_status(code: str) -> None:
    assert status_of(error(code, "text")) == STATUSES.get(code, Status.FAILED)


@pytest.mark.parametrize("code", CODES)
def test_an_error_is_two_lines(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise error(code, "it did\nnot\x1b[31m work")

    assert guarded(fail)() == STATUSES.get(code, Status.FAILED)
    happened, advice = capsys.readouterr().err.splitlines()
    assert happened == f"quoth: {code}: it did not\\x1b[31m work"
    assert advice == f"hint: {CODES[code].hint}"


def test_an_error_of_a_producer_counts_as_its_cause() -> None:
    assert isinstance(ProducerError, type)
    assert issubclass(ProducerError, QuothError)


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (KeyboardInterrupt(), 130),
        (typer.Abort(), 130),
        (FileNotFoundError(2, "No such file", "x"), 3),
        (PermissionError(13, "Permission denied", "x"), 1),
        (OSError("odd"), 1),
    ],
)
def test_other_ends(problem: BaseException, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quothcli.cli.exit_status.forget_stdout", lambda: None)

    def fail() -> None:
        raise problem

    assert guarded(fail)() == status


def test_a_stderr_that_is_gone_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Gone())
    say("to nobody")


def test_version(alone: Command) -> None:
    told = alone("--version")
    assert (told.status, told.err) == (0, "")
    assert told.out.decode().startswith("quoth 0.")


@pytest.mark.parametrize("group", [(), ("topic",), ("log",)], ids=["quoth", "topic", "log"])
def test_a_group_alone_shows_its_help(alone: Command, group: tuple[str, ...]) -> None:
    told = alone(*group)
    assert (told.status, told.err) == (2, "")
    assert told.out.startswith(b"Usage: quoth ")
    asked = alone(*group, "--help")
    assert (asked.status, asked.out) == (0, told.out)


every_text = pytest.mark.parametrize(
    "typed", ["", "--help", "--version", "topic", "pub --help", "topic ls --help"]
)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@every_text
def test_a_text_for_a_full_disk(alone: Command, typed: str) -> None:
    with open("/dev/full", "wb") as full:
        ended = alone.start(*typed.split(), stdout=full).end()
    assert ended.status == 1
    assert len(ended.err.splitlines()) == 2, ended.err


@every_text
def test_a_text_that_nobody_reads(alone: Command, typed: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = alone.start(*typed.split(), stdout=writing).end()
    os.close(writing)
    assert (ended.status, ended.err) == (0, "")


INTERRUPTED_AT = """
import os, signal, sys

class Interrupter:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupter())
from quothcli.main import main
assert "typer" not in sys.modules and "zmq" not in sys.modules, "it takes long to import this"
main(["--version"])
"""


@pytest.mark.parametrize("module", ["quothcli.application", "typer", "quothwire.errors"])
def test_an_interrupt_while_it_is_loaded(module: str) -> None:
    """Ctrl-C is heard from the beginning, and is no traceback."""
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT, module], capture_output=True, timeout=DEADLINE_S
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


def test_an_interrupt_that_is_ignored_stays_so() -> None:
    """As behind nohup, or in the background of a script."""
    ignored = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + INTERRUPTED_AT
    ended = subprocess.run([sys.executable, "-c", ignored, "typer"], capture_output=True, timeout=DEADLINE_S)
    assert (ended.returncode, ended.stderr) == (0, b"")


TYPED = {
    "tpic ls": "topic",
    "topic lst": "ls",
    "publ x": "pub",
    "read x --limt 5": "--limit",
    "serve --prot 5": "--port",
    "read": "TOPIC",
    "log dump": "DIR",
}


@pytest.mark.parametrize("typed", TYPED)
def test_typed_wrongly_gets_the_right_word(alone: Command, typed: str) -> None:
    told = alone(*typed.split())
    assert (told.status, told.out) == (2, b"")
    happened, advice = told.err.splitlines()
    assert TYPED[typed] in happened
    assert "--help` shows how" in advice


def test_a_defect_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is understood is turned into two lines."""

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        guarded(fail)()
    assert application.run(["--version"]) == 0
