"""An empty path is a variable that was not set: an error, and never the current directory."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.deadlines import DEADLINE_S
from kit.machine.commands import Command, quothd
from kit.machine.forkserver import PYTHON, start
from quothcli.application import run, tree

PATHS = re.compile(r"(DIR|FILE|DATADIR|BACKUP|DIRECTORY|INPUT)")


def lines(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, list[str]]]:
    """Yield every argument and option that is a path, as (its name, a line in which it is empty)."""
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


def test_every_command_refuses_an_empty_path(capfd: pytest.CaptureFixture[str]) -> None:
    every = dict(lines(tree()))
    known = {"serve --config", "tail --cursor", "backup DATADIR", "restore BACKUP", "log verify DIR"}
    known |= {"demo FILE", "pipeline archive DIR", "pipeline audit --out", "pipeline replay INPUT"}
    assert known <= set(every)
    for name, line in every.items():
        assert run(line) == 2, name
        assert " is an empty path" in capfd.readouterr().err, name


TYPED = (
    ("serve", "--dir", "", "--port", "0"),
    ("serve", "--config", "", "--port", "0"),
    ("serve", "--listen", "ipc://", "--host", "", "--check"),
    ("backup", "", "saved"),
    ("pub", "t", "--file", ""),
    ("forward", "", "tcp://127.0.0.1:9", "--once"),
    ("ping", "--url", ""),
)


def test_variable_that_is_not_set_makes_nothing_in_the_current_directory(
    alone: Command, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for typed in TYPED:
        result = alone.start(*typed, cwd=here).end()
        assert (result.status, "bad_setting" in result.err) == (2, True), typed
    file = tmp_path / "quoth.toml"
    file.write_text('dir = ""\n')
    sources: list[tuple[list[str], dict[str, str]]] = [
        (["--dir", ""], {}), (["--config", ""], {}), (["--config", str(file)], {}), ([], {"QUOTH_DIR": ""}),
    ]  # fmt: skip
    for options, environment in sources:
        ended = quothd(*options, "--port", "0", cwd=here, environment=environment)
        assert ended.status == 2, ended
        assert "is an empty path" in ended.err
    assert list(here.iterdir()) == []
    assert alone.start("serve", "--check", "--dir", ".", "--port", "0", cwd=here).end().status == 0


LIBRARY = """
import quoth
from quoth.spark.atomic_files import local_path, refuse_existing
from quothd import Broker
from quothlog import Log, Reader, Writer
from quothlog.reading.tailer import Tailer

for opened in (
    lambda: Broker(""), lambda: Log.open(""), lambda: Writer(""), lambda: Reader(""),
    lambda: Tailer("", on_missing=print), lambda: quoth.Cursor(""),
    lambda: local_path("file://"), lambda: refuse_existing(""),
):
    try:
        opened()
    except quoth.QuothError as problem:
        print(problem.code)
"""


def test_libraries_refuse_an_empty_path(tmp_path: Path) -> None:
    with start([*PYTHON, LIBRARY], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate(timeout=DEADLINE_S)[0].split() == ["bad_setting"] * 8
    assert list(tmp_path.iterdir()) == []
