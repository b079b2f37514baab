"""`quoth pipeline` without Spark: errors of every job, dry runs, nothing left to replay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit.broker.brokers import BrokerProcess
from kit.machine.commands import Command, Ended
from kit.spark.replays import BEGAN, LOG, Record, Replaying, write_archive
from kit.spark.workers import close_connections
from quoth import connect
from quoth.spark.archive.manifest import NAME
from quoth.spark.jobs.replay import summary_of
from quoth.spark.replay.inputs import ReplayRequest, input_of
from quoth.spark.replay.replayer import StreamTally

RECORDS = [Record(BEGAN + row, b"k", b"%d" % row, {}) for row in range(100)]

Typed = Callable[..., Ended]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    root = tmp_path / "archive"
    for number, topic in enumerate(("orders", "clicks")):
        write_archive(root, topic, [RECORDS[:50], RECORDS[50:]], log=LOG + number)
    return root


@pytest.fixture
def typed(quoth: Command, archive: Path) -> Typed:
    """Types `quoth pipeline replay` with the archive, or with what is given instead."""

    def run(*arguments: str, path: Path | str = archive, url: str = quoth.url) -> Ended:
        return quoth("pipeline", "replay", str(path), "--url", url, *arguments)

    return run


WRONG: dict[str, tuple[list[str], int, str]] = {
    "a speed of nothing": (["--speed", "0"], 2, "--speed 0"),
    "no speed": (["--speed", "nan"], 2, "is no speed"),
    "a speed backwards": (["--speed", "-1"], 2, "is no speed"),
    "a time that is none": (["--since", "yesterday"], 2, "neither a pointer nor a time"),
    "a time that moves": (["--since", "-1h"], 2, "--application NAME"),
    "an end that moves": (["--until", "now"], 2, "--application NAME"),
    "a topic that is not there": (["--topic", "payments"], 3, "it has clicks, orders"),
    "a target for both": (["--to", "new"], 2, "write OLD=NEW"),
    "both into one": (["--to", "orders=x", "--to", "clicks=x"], 2, "one after the other"),
    "a target that is no name": (["--topic", "orders", "--to", "a/b"], 2, "bad_topic"),
    "columns": (["--value-column", "json"], 2, "--value-column is for other tables"),
    "chunks of nothing": (["--chunk-bytes", "0"], 2, "--chunk-bytes"),
    "an option that is none": (["--form", "json"], 2, "--form"),
    "a setting that is none": (["--conf", "x", "--dry-run"], 2, "--conf"),
}


def test_mistyped_replay_is_refused_in_two_lines(typed: Typed) -> None:
    for case, (arguments, status, text) in WRONG.items():
        assert text in "".join(typed(*arguments).refused(status)), case


def test_time_that_moves_needs_an_archive_and_a_name(typed: Typed, tmp_path: Path) -> None:
    moving = ["--since", "-100000d", "--application", "nightly", "--dry-run"]
    ended = typed(*moving)
    assert ended.status == 0, ended.err
    assert ended.lines[0] == "clicks -> clicks: at most 100 records in 1 chunks"
    table = tmp_path / "one.parquet"
    pq.write_table(pa.table({"value": ["a"], "at": [1]}), table)
    ended = typed(*moving, "--to", "new", "--time-column", "at", path=table)
    assert (ended.status, "is another time in every run" in ended.err) == (2, True)


def test_path_without_anything_to_replay_is_refused(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in ("nowhere", "empty", "s3://bucket/archive"):
        ended = typed("--to", "new", path=path if ":" in path else tmp_path / path)
        assert ended.status in (2, 3)
        assert path.partition(":")[0] in ended.err
        assert len(ended.err.splitlines()) == 2


def test_dry_run_prints_a_plan_and_does_nothing(typed: Typed, broker: BrokerProcess) -> None:
    ended = typed("--to", "orders=old-orders", "--since", str(BEGAN + 50), "--dry-run")
    assert ended.status == 0
    assert ended.lines == [
        "clicks -> clicks: at most 50 records in 1 chunks",
        "orders -> old-orders: at most 50 records in 1 chunks",
        "nothing was replayed",
    ]
    [told] = typed("--format", "json", "--dry-run").objects
    assert (told["dry_run"], told["records"]) == (True, 200)
    with connect(broker.url) as client:
        assert not {"clicks", "orders", "old-orders"} & set(client.topics())


def test_finished_replay_needs_no_spark(typed: Typed, broker: BrokerProcess, tmp_path: Path) -> None:
    root = tmp_path / "one"
    write_archive(root, "orders", [RECORDS])
    with connect(broker.url) as client:
        Replaying(client, root, "again").replay()
    close_connections()
    ended = typed("--to", "again", "--master", "no-such-master", path=root)
    assert ended.status == 0
    what, stored = ended.lines
    assert "nothing is left to replay, all up to 2026-01-02T03:04:05.000099Z was replayed before" in what
    assert stored == "nothing was stored"
    [told] = typed("--to", "again", "--format", "json", path=root).objects
    assert (told["records"], told["chunks"], told["topics"][0]["before"]) == (0, 0, RECORDS[-1].pointer)


def test_missing_broker_is_reported(typed: Typed) -> None:
    ended = typed("--timeout", "0.5", url="tcp://127.0.0.1:9")
    assert ended.status == 4
    assert "disconnected" in ended.err


def test_summary_reports_a_speed_that_was_not_kept(archive: Path) -> None:
    [stream, _] = input_of(archive, ReplayRequest()).streams()
    result = [StreamTally(stream, 0, chunks=2, records=100, bytes=5_000)]
    late = summary_of(result, 4.0, 3.5)
    assert late.content["behind_s"] == 3.5
    assert late.lines[-1] == "it could not keep up: 3.5 s late"
    assert summary_of(result, 4.0).lines[-1] == (
        "replayed 100 records in 2 chunks, 5,000 bytes in 4.0 s: 25 records a second"
    )


# -- every job ------------------------------------------------------------------------------------


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
