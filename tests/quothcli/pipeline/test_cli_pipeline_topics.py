"""`quoth pipeline`: every job refuses missing topics and damaged archives before there is a session."""

from __future__ import annotations

from pathlib import Path

from kit.broker.brokers import BrokerProcess
from kit.machine.commands import Command
from kit.spark.replays import BEGAN, LOG, Record, write_archive
from quoth.spark.archive.manifest import NAME

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


def test_unknown_topic_is_refused(quoth: Command, broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    assert quoth("pub", topic, "x").status == 0
    archive, new = tmp_path / "archive", tmp_path / "new"
    write_archive(archive, topic, [[Record(BEGAN, b"k", b"v", {})]], log=LOG)
    before = files_in(archive)
    places = {"there": topic, "name": "no-such-topic", "archive": archive, "new": new}
    for job, typed in JOBS.items():
        words = [one.format(**places, data=broker.directory) for one in typed]
        said, hint = quoth("pipeline", *words, "--master", "no-such-master").refused(3)
        assert said.startswith("quoth: unknown_topic: "), job
        assert "no-such-topic" in said
        assert topic not in said.replace("no-such-topic", "")
        assert words[0] not in ("compact", "replay") or f"it has {topic}" in hint
        assert files_in(archive) == before
        assert not new.exists()


def test_damaged_archive_is_refused(quoth: Command, topic: str, tmp_path: Path) -> None:
    assert quoth("pub", topic, "x").status == 0
    (tmp_path / NAME).write_bytes(b"{}")
    for job, words in (("archive", (topic,)), ("compact", ()), ("replay", ())):
        said, _ = quoth("pipeline", job, str(tmp_path), *words).refused(1)
        assert said.startswith(f"quoth: damaged: {tmp_path / NAME} is no manifest")


def files_in(folder: Path) -> dict[Path, bytes]:
    """Read all files of a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
