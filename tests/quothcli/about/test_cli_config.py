"""`quoth config` shows, checks and begins a configuration; `quoth serve` goes by it as the daemon does."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess
from kit.machine.commands import Command, Ended, Running, quothd
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
    result = alone(
        "config", "show", "--config", str(file), "--no-auto-create", "--listen", "ipc:///a,ipc:///b",
        environment={"QUOTH_PORT": "7000"},
    )  # fmt: skip
    assert result.status == 0
    rows = {line.split()[0]: line for line in result.lines}
    assert list(rows) == list(KEYS)
    assert rows["port"].split()[1:] == ["7000", "QUOTH_PORT"]
    assert rows["durability"].split()[1:] == ['"synced"', f"{file}:1"]
    assert rows["auto_create"].split()[1:] == ["false", "--auto-create"]
    assert rows["listen"].endswith("--listen")
    assert rows["max_age"].split()[1:] == ['"infinity"', "default"]


def test_show_as_json_keeps_types(alone: Command, file: Path) -> None:
    result = alone("config", "show", "--config", str(file), "--listen", "ipc:///a", "--format", "json")
    rows = {row.pop("key"): row for row in result.objects}
    assert rows["port"] == {"value": 6000, "origin": f"{file}:3", "default": 5555, "reload": False}
    assert rows["listen"]["value"] == ["ipc:///a"]
    assert rows["dir"]["value"] == "quoth-data"
    assert rows["max_age"]["reload"] is True


def test_raw_output_of_show_is_a_file_with_the_same_values(
    alone: Command, file: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again.toml"
    again.write_bytes(alone("config", "show", "--config", str(file), "--format", "raw").out)
    result = alone("config", "show", "--config", str(again), "--format", "raw")
    assert result.out == again.read_bytes()
    assert b'durability = "synced"\n' in result.out


def test_misspelt_variable_is_refused(alone: Command) -> None:
    """The daemon and every command refuse it."""
    wrong = {"QUOTH_PROT": "1"}
    commands = [alone(*typed.split(), environment=wrong) for typed in ("config show", "ping")]
    for told in (quothd("--check", environment=wrong), *commands):
        assert told.status == 2
        assert "QUOTH_PROT: there is no such variable" in told.err
        assert "did you mean QUOTH_PORT?" in told.err


def checked(alone: Command, *arguments: str) -> list[Ended]:
    """Check in all three ways."""
    return [
        alone("config", "check", *arguments),
        alone("serve", "--check", *arguments),
        quothd("--check", *arguments),
    ]


def test_check_prints_ok_and_the_keys_that_differ(alone: Command, file: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for told in checked(alone, "--config", str(file), "--dir", str(data), "--port", "5555"):
        assert (told.status, told.err) == (0, "")
        ok, *lines, last = told.lines
        assert ok == "ok"
        assert [line.split() for line in lines] == [
            ["dir", "=", f'"{data}"', "--dir"],
            ["durability", "=", '"synced"', f"{file}:1"],
        ]
        assert last == "everything else is as by default"
    assert not data.exists()


WRONG = {
    "prot = 1\n": ":1: there is no key 'prot' (did you mean port?)",
    "\nport = 'x'\n": ":2: port cannot be 'x' (it is a whole number)",
    'host = "0.0.0.0"\n': "--insecure",
    'dir = "/dev/null/x"\n': "/dev/null is no directory",
    "port\n": "is no TOML",
}


def test_check_prints_each_error_in_a_line(alone: Command, file: Path) -> None:
    for text, said in WRONG.items():
        file.write_text(text)
        for told in checked(alone, "--config", str(file)):
            assert (told.status, told.out, told.err.count("\n")) == (2, b"", 1)
            assert said in told.err


def test_example_is_the_shipped_file_and_can_be_used(alone: Command, tmp_path: Path) -> None:
    result = alone("config", "example")
    assert result.out.decode() == template.text() == (ROOT / "systemd" / "quothd.toml").read_text()
    (tmp_path / "quothd.toml").write_bytes(result.out)
    shown = alone("config", "show", "--config", str(tmp_path / "quothd.toml"), "--format", "json")
    assert {row["origin"] for row in shown.objects} == {"default"}
    assert json.dumps(shown.objects[0]["value"]) == '"quoth-data"'


# -- serve ----------------------------------------------------------------------------------------


def ready(serve: Running) -> str:
    """Wait until it serves; returns its URL."""
    while line := serve.error_line():
        if line.startswith(BrokerProcess.ready):
            return line.removeprefix(BrokerProcess.ready)
    raise AssertionError(f"it ended with {serve.process.wait()}")


def test_serve_runs_until_a_signal_and_has_its_directory_alone(alone: Command, tmp_path: Path) -> None:
    typed = ("serve", "--dir", str(tmp_path / "data"), "--port", "0")
    for number in (signal.SIGTERM, signal.SIGINT):
        serve = alone.start(*typed)
        url = ready(serve)
        assert alone("pub", "greetings", "hello", "--url", url).status == 0
        result = alone(*typed)
        assert result.status == 3
        assert f"in use by process {serve.process.pid}" in result.err
        ended = serve.end(number)
        assert ended.status == 0
        assert "unlocked" in ended.err
    assert alone("log", "dump", str(tmp_path / "data"), "--format", "raw").lines == ["hello", "hello"]


def test_wrong_option_or_key_is_refused(alone: Command, tmp_path: Path) -> None:
    file = tmp_path / "quoth.toml"
    file.write_text("prot = 1\n")
    for options, said in (
        (("--port", "many"), "port"),
        (("--host", "0.0.0.0"), "insecure"),
        (("--durability", "maybe"), "durability"),
        (("--config", str(file)), "did you mean port?"),
    ):
        result = alone("serve", "--dir", str(tmp_path / "data"), "--port", "0", *options)
        assert (result.status, result.out, said in result.err) == (2, b"", True), result
