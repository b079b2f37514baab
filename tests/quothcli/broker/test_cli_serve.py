"""`quoth serve` has the options and the exit statuses of the daemon."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from kit.broker.brokers import READY
from kit.machine.commands import Command, Running


def ready(serve: Running) -> str:
    """Wait until it serves; returns its URL."""
    while line := serve.error_line():
        if line.startswith(READY):
            return line.removeprefix(READY)
    raise AssertionError(f"it ended with {serve.process.wait()}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_runs_until_a_signal(alone: Command, tmp_path: Path, number: int) -> None:
    serve = alone.start("serve", "--dir", str(tmp_path / "data"), "--port", "0")
    url = ready(serve)
    assert alone("pub", "greetings", "hello", "--url", url).status == 0
    ended = serve.end(number)
    assert ended.status == 0
    assert "unlocked" in ended.err
    assert b"hello" in alone("log", "dump", str(tmp_path / "data")).out


def test_options_win_over_environment_and_file(alone: Command, tmp_path: Path) -> None:
    file = tmp_path / "quoth.toml"
    file.write_text('durability = "synced"\nport = 1\nauto_create = true\n')
    serve = alone.start(
        "serve", "--config", str(file), "--no-auto-create",
        environment={"QUOTH_DIR": str(tmp_path / "data"), "QUOTH_PORT": "0"},
    )  # fmt: skip
    url = ready(serve)
    assert alone("pub", "greetings", "hello", "--url", url).status == 3
    (made,) = alone("topic", "create", "greetings", "--url", url, "--format", "json").objects
    assert made["settings"]["durability"] == "synced"
    assert serve.end(signal.SIGTERM).status == 0
    assert (tmp_path / "data" / "topics").is_dir()


@pytest.mark.parametrize("options", [("--port", "many"), ("--host", "0.0.0.0"), ("--durability", "maybe")])
def test_wrong_option_is_refused(alone: Command, tmp_path: Path, options: tuple[str, ...]) -> None:
    told = alone("serve", "--dir", str(tmp_path / "data"), "--port", "0", *options)
    assert (told.status, told.out) == (2, b"")
    assert options[0].strip("-") in told.err or "insecure" in told.err


def test_wrong_key_in_the_file_is_refused(alone: Command, tmp_path: Path) -> None:
    file = tmp_path / "quoth.toml"
    file.write_text("prot = 1\n")
    told = alone("serve", "--config", str(file))
    assert told.status == 2
    assert "did you mean port?" in told.err


def test_second_process_on_a_directory_is_refused(alone: Command, tmp_path: Path) -> None:
    serve = alone.start("serve", "--dir", str(tmp_path), "--port", "0")
    ready(serve)
    told = alone("serve", "--dir", str(tmp_path), "--port", "0")
    assert told.status == 3
    assert f"in use by process {serve.process.pid}" in told.err
    assert serve.end(signal.SIGTERM).status == 0
