"""An empty path is a variable that was not set: an error, and never the current directory."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quoth
from kit.broker.peers import refused
from kit.deadlines import DEADLINE_S
from quoth.spark.atomic_files import local_path, refuse_existing
from quothcli.application import run, tree
from quothd import Broker
from quothd.config.check import check
from quothd.config.sources import load
from quothlog import Log, Reader, Writer
from quothlog.reading.tailer import Tailer

PATHS = re.compile(r"(DIR|FILE|DATADIR|BACKUP|DIRECTORY|INPUT)")


def lines(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, list[str]]]:
    """Every argument and option that is a path, as (its name, a line in which it is empty)."""
    parameters = getattr(command, "params", [])
    needed = [one for one in parameters if one.param_type_name == "argument" and one.required]
    for one in parameters:
        if PATHS.fullmatch(str(one.metavar)):
            others = ["" if other is one else "x" for other in needed]
            is_option = one.param_type_name == "option"
            added = [one.opts[-1], ""] if is_option else [""] if one not in needed else []
            name = " ".join([*words, one.opts[-1] if is_option else one.metavar])
            yield name, [*words, *added[:2], *others]
    for name, below in getattr(command, "commands", {}).items():
        yield from lines(below, (*words, name))


EVERY = dict(lines(tree()))


def test_every_path_of_a_command_is_known() -> None:
    known = {
        "serve --config",
        "tail --cursor",
        "backup DATADIR",
        "restore BACKUP",
        "log verify DIR",
        "demo FILE",
    }
    known |= {"pipeline archive DIR", "pipeline audit --out", "pipeline replay INPUT"}
    assert set(EVERY) >= known
    assert len(EVERY) > 20


@pytest.mark.parametrize("line", EVERY.values(), ids=EVERY)
def test_an_empty_path_is_refused_by_every_command(
    line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(line) == 2
    assert " is an empty path" in capfd.readouterr().err


TYPED: dict[str, list[str]] = {
    "serve --dir": ["serve", "--dir", "", "--port", "0"],
    "serve --config": ["serve", "--config", "", "--port", "0"],
    "serve --listen": ["serve", "--listen", "ipc://", "--host", "", "--check"],
    "log verify": ["log", "verify", ""],
    "backup": ["backup", "", "saved"],
    "restore": ["restore", "saved", ""],
    "pub --file": ["pub", "t", "--file", ""],
    "tail --cursor": ["tail", "t", "--cursor", ""],
    "doctor": ["doctor", ""],
    "forward": ["forward", "", "tcp://127.0.0.1:9", "--once"],
    "ping --url": ["ping", "--url", ""],
}


@pytest.mark.parametrize("typed", TYPED.values(), ids=TYPED)
def test_a_variable_that_is_not_set_is_a_mistake(
    typed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(typed) == 2
    assert "bad_setting" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == [], "something was made in the current directory"


def test_the_daemon_does_not_serve_the_current_directory(tmp_path: Path) -> None:
    for typed in (["--dir", ""], ["--config", ""]):
        daemon = [sys.executable, "-c", "import quothd.main; quothd.main.main()", *typed, "--port", "0"]
        ended = subprocess.run(
            daemon, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
        assert ended.returncode == 2, ended
        assert "is an empty path" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_empty_directory_is_a_mistake_in_every_source(tmp_path: Path) -> None:
    file = tmp_path / "quoth.toml"
    file.write_text('dir = ""\n')
    for settings, environment, path in (
        ({"dir": ""}, {}, None),
        ({}, {"QUOTH_DIR": ""}, None),
        ({}, {}, file),
    ):
        with pytest.raises(quoth.RequestError, match="dir is an empty path") as caught:
            load(settings, environment, path)
        assert caught.value.code == "bad_setting"
    with refused("bad_setting"):
        check(load({"listen": "ipc://"}, {}))


LIBRARY: dict[str, Callable[[], object]] = {
    "Broker": lambda: Broker(""),
    "Log": lambda: Log.open(""),
    "Writer": lambda: Writer(""),
    "Reader": lambda: Reader(""),
    "Follower": lambda: Tailer("", on_missing=print),
    "Cursor": lambda: quoth.Cursor(""),
    "archive": lambda: local_path("file://"),
    "job's output": lambda: refuse_existing(""),
}


@pytest.mark.parametrize("opened", LIBRARY.values(), ids=LIBRARY)
def test_the_libraries_take_no_empty_path(
    opened: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with refused("bad_setting"):
        opened()
    assert list(tmp_path.iterdir()) == []


def test_a_dot_is_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["serve", "--check", "--dir", ".", "--port", "0"]) == 0
