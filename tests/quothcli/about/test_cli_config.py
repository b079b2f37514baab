"""`quoth config` shows the source of each value, checks a configuration, and prints an example."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from kit.machine.commands import Command
from kit.machine.processes import python_of
from quothd.config import template
from quothd.config.config import KEYS

ROOT = Path(__file__).parents[3]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with two keys."""
    file = tmp_path / "quoth.toml"
    file.write_text('durability = "synced"\n\nport = 6000\n')
    return file


def test_show_prints_the_source_of_each_value(alone: Command, file: Path) -> None:
    told = alone(
        "config", "show", "--config", str(file), "--no-auto-create", "--listen", "ipc:///a,ipc:///b",
        environment={"QUOTH_PORT": "7000"},
    )  # fmt: skip
    assert told.status == 0
    rows = {line.split()[0]: line for line in told.lines}
    assert list(rows) == list(KEYS)
    assert rows["port"].split()[1:] == ["7000", "QUOTH_PORT"]
    assert rows["durability"].split()[1:] == ['"synced"', f"{file}:1"]
    assert rows["auto_create"].split()[1:] == ["false", "--auto-create"]
    assert rows["listen"].endswith("--listen")
    assert rows["max_age"].split()[1:] == ['"infinity"', "default"]


def test_show_as_json_keeps_types(alone: Command, file: Path) -> None:
    told = alone("config", "show", "--config", str(file), "--listen", "ipc:///a", "--format", "json")
    rows = {row.pop("key"): row for row in told.objects}
    assert rows["port"] == {"value": 6000, "origin": f"{file}:3", "default": 5555, "reload": False}
    assert rows["listen"]["value"] == ["ipc:///a"]
    assert rows["dir"]["value"] == "quoth-data"
    assert rows["max_age"]["reload"] is True


def test_raw_output_of_show_is_a_file_with_the_same_values(
    alone: Command, file: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again.toml"
    again.write_bytes(alone("config", "show", "--config", str(file), "--format", "raw").out)
    told = alone("config", "show", "--config", str(again), "--format", "raw")
    assert told.out == again.read_bytes()
    assert b'durability = "synced"\n' in told.out


def test_misspelt_variable_is_refused(alone: Command) -> None:
    """The daemon and every command refuse it."""
    wrong = {"QUOTH_PROT": "1"}
    daemon = subprocess.run(
        [*python_of("quothd.main"), "--check"],
        env=os.environ | wrong,
        capture_output=True,
        text=True,
        timeout=60,
    )
    ended = [alone(*typed, environment=wrong) for typed in (("config", "show"), ("ping",))]
    for status, err in [(daemon.returncode, daemon.stderr), *((told.status, told.err) for told in ended)]:
        assert status == 2
        assert "QUOTH_PROT: there is no such variable" in err
        assert "did you mean QUOTH_PORT?" in err


def test_help_of_the_keys_names_spans_and_sizes(alone: Command) -> None:
    daemon = subprocess.run(
        [*python_of("quothd.main"), "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    helps = [alone(*typed, "--help").out.decode() for typed in (("serve",), ("config", "show"))]
    for text in (daemon.stdout, *helps):
        words = " ".join(text.replace("\u2502", " ").split())
        assert re.search(r"--max-age SPAN Age above which records are removed; infinity: never\.", words), (
            text
        )
        assert re.search(r"--max-bytes SIZE Size of a topic", words), text
        assert re.search(r"--workers-max N Topics", words), text
        assert not re.search(r"SPAN Seconds|SIZE Bytes|VALUE (Seconds|Bytes)", words)


def checkers() -> list[tuple[str, ...]]:
    """The three ways to check."""
    return [("config", "check"), ("serve", "--check"), ("quothd", "--check")]


def ask(alone: Command, checker: tuple[str, ...], *arguments: str) -> tuple[int, str, str]:
    """Check in one way; returns exit status, output and errors."""
    if checker[0] != "quothd":
        told = alone(*checker, *arguments)
        return told.status, told.out.decode(), told.err
    done = subprocess.run(
        [*python_of("quothd.main"), *checker[1:], *arguments], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("checker", checkers(), ids=" ".join)
def test_check_prints_ok_and_what_differs(
    alone: Command, checker: tuple[str, ...], file: Path, tmp_path: Path
) -> None:
    arguments = ("--config", str(file), "--dir", str(tmp_path / "data"), "--port", "5555")
    status, out, err = ask(alone, checker, *arguments)
    assert (status, err) == (0, "")
    ok, *lines = out.splitlines()
    assert ok == "ok"
    assert [line.split() for line in lines[:-1]] == [
        ["dir", "=", f'"{tmp_path / "data"}"', "--dir"],
        ["durability", "=", '"synced"', f"{file}:1"],
    ]
    assert lines[-1] == "everything else is as by default"
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("checker", checkers(), ids=" ".join)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 1\n", ":1: there is no key 'prot' (did you mean port?)"),
        ("\nport = 'x'\n", ":2: port cannot be 'x' (it is a whole number)"),
        ('host = "0.0.0.0"\n', "--insecure"),
        ('dir = "/dev/null/x"\n', "/dev/null is no directory"),
        ("port\n", "is no TOML"),
    ],
)
def test_check_names_what_is_wrong_in_a_line(
    alone: Command, checker: tuple[str, ...], file: Path, text: str, said: str
) -> None:
    file.write_text(text)
    status, out, err = ask(alone, checker, "--config", str(file))
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_missing_file_is_refused(alone: Command, tmp_path: Path) -> None:
    for command in (("config", "show"), ("config", "check"), ("serve",)):
        told = alone(*command, "--config", str(tmp_path / "missing.toml"))
        assert told.status == 2
        assert f"{tmp_path / 'missing.toml'}: No such file or directory" in told.err


def test_example_is_the_shipped_file_and_can_be_used(alone: Command, tmp_path: Path) -> None:
    told = alone("config", "example")
    assert told.out.decode() == template.text() == (ROOT / "systemd" / "quothd.toml").read_text()
    (tmp_path / "quothd.toml").write_bytes(told.out)
    shown = alone("config", "show", "--config", str(tmp_path / "quothd.toml"), "--format", "json")
    assert {row["origin"] for row in shown.objects} == {"default"}
    assert json.dumps(shown.objects[0]["value"]) == '"quoth-data"'
