"""Every command ends with an exit status and two lines on stderr, and never with a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit.deadlines import DEADLINE_S
from kit.machine.commands import Command
from quothcli.cli.exit_status import CommandStatus, guarded, status_of
from quothwire.errors import CODES, error

STATUSES = {
    **dict.fromkeys(("bad_request", "bad_topic", "bad_pointer", "bad_setting"), CommandStatus.USAGE),
    **dict.fromkeys(("unknown_topic", "unknown_record"), CommandStatus.NOT_FOUND),
    **dict.fromkeys(("timed_out", "disconnected", "closed"), CommandStatus.TIMED_OUT),
}


def test_every_error_has_an_exit_status_and_is_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(code: str) -> None:
        raise error(code, "it did\nnot\x1b[31m work")

    for code, row in CODES.items():
        assert guarded(fail)(code) == status_of(error(code, "")) == STATUSES.get(code, CommandStatus.FAILED)
        happened, advice = capsys.readouterr().err.splitlines()
        assert happened == f"quoth: {code}: it did not\\x1b[31m work"
        assert advice == f"hint: {row.hint}"


def test_defect_is_not_hidden() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        guarded(fail)()


def test_version_is_printed(alone: Command) -> None:
    told = alone("--version")
    assert (told.status, told.err) == (0, "")
    assert told.out.decode().startswith("quoth 0.")


def test_group_alone_prints_its_help_and_fails(alone: Command) -> None:
    for group in ((), ("topic",), ("log",)):
        told = alone(*group)
        assert (told.status, told.err) == (2, "")
        assert told.out.startswith(b"Usage: quoth ")
        asked = alone(*group, "--help")
        assert (asked.status, asked.out) == (0, told.out)


TEXTS = ("", "--version", "topic", "pub --help")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_text_on_a_full_disk_fails(alone: Command) -> None:
    for typed in TEXTS:
        with open("/dev/full", "wb") as full:
            alone.start(*typed.split(), stdout=full).end().refused(1)


def test_text_without_a_reader_ends_silently(alone: Command) -> None:
    for typed in TEXTS:
        reading, writing = os.pipe()
        os.close(reading)
        assert alone.start(*typed.split(), stdout=writing).end() == (0, b"", "")
        os.close(writing)


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


def interrupted_at(module: str, before: str = "") -> subprocess.CompletedProcess[bytes]:
    """Send SIGINT to a command while it imports a module."""
    code = f"{before}\n{INTERRUPTED_AT}"
    return subprocess.run([sys.executable, "-c", code, module], capture_output=True, timeout=DEADLINE_S)


@pytest.mark.parametrize("module", ["quothcli.application", "typer", "quothwire.errors"])
def test_interrupt_while_it_is_loaded_ends_it_without_a_traceback(module: str) -> None:
    ended = interrupted_at(module)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


def test_interrupt_that_is_ignored_stays_so() -> None:
    """As behind nohup, or in the background of a script."""
    ended = interrupted_at("typer", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert (ended.returncode, ended.stderr) == (0, b"")
