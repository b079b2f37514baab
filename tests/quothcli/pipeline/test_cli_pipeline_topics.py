"""`quoth pipeline`: every job refuses missing topics and damaged archives before there is a session.

In this process: a command of its own loads PySpark for seconds each time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess
from kit.machine.commands import Ended
from kit.spark.replays import BEGAN, LOG, Record, write_archive
from quoth import connect
from quoth.spark.archive.manifest import NAME
from quothcli.application import run as run_command
from quothcli.cli.exit_status import CommandStatus

JOBS = {
    "archive": ("archive", "{new}", "{name}"),
    "archive, one of several": ("archive", "{new}", "{there}", "{name}"),
    "archive, a pattern": ("archive", "{new}", "{name}*"),
    "stats": ("stats", "{name}"),
    "stats, one of several": ("stats", "{there}", "{name}"),
    "stats, following": ("stats", "{there}", "{name}", "--follow", "1"),
    "compact": ("compact", "{archive}", "{name}"),
    "compact, one of several": ("compact", "{archive}", "{there}", "{name}"),
    "compact, a pattern": ("compact", "{archive}", "{name}*"),
    "replay": ("replay", "{archive}", "--topic", "{name}"),
    "replay, one of several": ("replay", "{archive}", "--topic", "{there}", "--topic", "{name}"),
    "replay, a pattern": ("replay", "{archive}", "--topic", "{name}*"),
    "audit": ("audit", "{data}", "--topic", "{name}"),
}
AT_A_BROKER = ("archive", "stats", "replay")


def test_unknown_topic_is_refused(
    broker: BrokerProcess, topic: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with connect(broker.url) as client:
        client.publish(topic, b"x")
    archive, new = tmp_path / "archive", tmp_path / "new"
    write_archive(archive, topic, [[Record(BEGAN, b"k", b"v", {})]], log=LOG)
    before = files_in(archive)
    places = {"there": topic, "name": "no-such-topic", "archive": archive, "new": new}
    for job, typed in JOBS.items():
        words = [one.format(**places, data=broker.topics_directory.parent) for one in typed]
        at = ["--url", broker.url] if words[0] in AT_A_BROKER else []
        said, hint = refused(["pipeline", *words, *at], CommandStatus.NOT_FOUND, capfd)
        assert said.startswith("quoth: unknown_topic: "), job
        assert "no-such-topic" in said
        assert topic not in said.replace("no-such-topic", "")
        assert words[0] not in ("compact", "replay") or f"it has {topic}" in hint
        assert files_in(archive) == before
        assert not new.exists()


def test_damaged_archive_is_refused(
    broker: BrokerProcess, topic: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with connect(broker.url) as client:
        client.publish(topic, b"x")
    (tmp_path / NAME).write_bytes(b"{}")
    at = ["--url", broker.url]
    for job, words in {"archive": [topic, *at], "compact": [], "replay": at}.items():
        said, _ = refused(["pipeline", job, str(tmp_path), *words], CommandStatus.FAILED, capfd)
        assert said.startswith(f"quoth: damaged: {tmp_path / NAME} is no manifest")


def refused(words: list[str], status: CommandStatus, capfd: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Run a job that is refused; returns what happened and what to do."""
    ended = run_command([*words, "--master", "no-such-master"])
    out, err = capfd.readouterr()
    return Ended(ended, out.encode(), err).refused(status)


def files_in(folder: Path) -> dict[Path, bytes]:
    """Read all files of a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
