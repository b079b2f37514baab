"""`quoth serve` has the options and the exit statuses of the daemon."""

from __future__ import annotations

import signal
from pathlib import Path

from kit.broker.brokers import READY
from kit.machine.commands import Command, Running


def ready(serve: Running) -> str:
    """Wait until it serves; returns its URL."""
    while line := serve.error_line():
        if line.startswith(READY):
            return line.removeprefix(READY)
    raise AssertionError(f"it ended with {serve.process.wait()}")


def test_serve_runs_until_a_signal_and_has_its_directory_alone(alone: Command, tmp_path: Path) -> None:
    typed = ("serve", "--dir", str(tmp_path / "data"), "--port", "0")
    for number in (signal.SIGTERM, signal.SIGINT):
        serve = alone.start(*typed)
        url = ready(serve)
        assert alone("pub", "greetings", "hello", "--url", url).status == 0
        told = alone(*typed)
        assert told.status == 3
        assert f"in use by process {serve.process.pid}" in told.err
        ended = serve.end(number)
        assert ended.status == 0
        assert "unlocked" in ended.err
    assert alone("log", "dump", str(tmp_path / "data"), "--format", "raw").lines == ["hello", "hello"]


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


def test_wrong_option_or_key_is_refused(alone: Command, tmp_path: Path) -> None:
    file = tmp_path / "quoth.toml"
    file.write_text("prot = 1\n")
    for options, said in (
        (("--port", "many"), "port"),
        (("--host", "0.0.0.0"), "insecure"),
        (("--durability", "maybe"), "durability"),
        (("--config", str(file)), "did you mean port?"),
    ):
        told = alone("serve", "--dir", str(tmp_path / "data"), "--port", "0", *options)
        assert (told.status, told.out, said in told.err) == (2, b"", True), told
