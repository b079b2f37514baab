"""The stats on a real Spark: windows as lines, JSON and Parquet, followed through kills; typed wrongly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import StartBroker
from kit.deadlines import eventually
from kit.machine.commands import Command
from kit.machine.processes import children, runs
from kit.scale import LONG
from kit.spark.sparks import JOB_S
from quoth import Client
from quoth.spark.jobs import stats
from quoth.spark.statistics.survey import Survey
from quothwire import pointer as pointers
from quothwire.errors import Disconnected, NotFound, RequestError

WIDTH = 1_000


def publish(client: Client, topic: str, count: int = 3_000) -> int:
    """Publish records with ten keys in some windows; returns the last pointer."""
    keys = [b"key %d" % (number % 10) for number in range(count)]
    return client.publish(topic, [b"value"] * count, key=keys).last


def kept(spark: Any, out: Path, kind: str = "windows") -> list[dict[str, Any]]:
    """Read the stored windows or gaps, in the order of time."""
    frame = spark.read.parquet(str(out / kind))
    return sorted((row.asDict() for row in frame.collect()), key=lambda row: row.get("first", row["topic"]))


def test_windows_are_told_as_text_as_json_and_as_parquet(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    publish(client, topic)
    client.create_topic(f"{topic}-empty")
    out = tmp_path / "out"
    summary = stats.job([topic, f"{topic}-*"], url=client.url, window="1ms", out=str(out))(spark)
    content = summary.content
    assert summary.good
    assert [one["records"] for one in content["topics"]] == [3_000, 0]
    assert sum(row["records"] for row in content["windows"]) == 3_000
    heading, *lines = summary.lines
    assert len(lines) == len(content["windows"]) + 2
    assert heading.split()[:2] == ["topic", "window"]
    assert lines[-1] == f"{topic}-empty: no records"
    full = next(row for row in content["windows"] if row["records"] == 1_000)
    assert (full["keys"], full["keyed"], full["value_bytes"], full["records_per_s"]) == (
        10,
        1_000,
        5_000,
        1e6,
    )
    rows = kept(spark, out)
    assert [row.pop("start").timestamp() for row in rows] == [
        pointers.parse(row.pop("start"), 0) / 1e6 for row in content["windows"]
    ]
    assert [{**row, "end": None} for row in rows] == [{**row, "end": None} for row in content["windows"]]
    assert kept(spark, out, "gaps") == []
    with pytest.raises(FileExistsError, match="exists already"):
        stats.job(topic, url=client.url, out=str(out))


def test_one_giant_window_and_a_stretch_of_time(spark: Any, client: Client, topic: str) -> None:
    publish(client, topic)
    middle = publish(client, topic)
    publish(client, topic)
    (giant,) = stats.job(topic, url=client.url, window="100000w")(spark).content["windows"]
    assert (giant["records"], giant["keys"], giant["behind_records"]) == (9_000, 10, 0)
    job = stats.job(topic, url=client.url, window="100000w", since=middle - 99, until=middle + 1)
    (part,) = job(spark).content["windows"]
    assert (part["records"], part["last"], part["behind_records"]) == (100, middle, 3_000)
    nothing = stats.job(topic, url=client.url, until=3)(spark)
    assert nothing.lines == [f"{topic}: no records"]


def test_a_trimmed_topic_says_what_is_gone(spark: Any, client: Client, topic: str) -> None:
    publish(client, topic)
    client.roll(topic)
    client.trim(topic, publish(client, topic))
    summary = stats.job(topic, url=client.url)(spark)
    assert summary.lines[-1].endswith("; 3,000 missing")
    assert summary.good, "that is what retention is for"


def test_a_broker_that_is_restarted_meanwhile_costs_nothing(
    spark: Any, start_broker: StartBroker, connect: Callable[..., Client], topic: str
) -> None:
    broker = start_broker()
    client = connect(broker)
    publish(client, topic, 50_000)
    job = stats.job(topic, url=broker.url)
    broker.kill()
    broker.restart()
    assert sum(row["records"] for row in job(spark).content["windows"]) == 50_000


class Crashed(Exception):
    """In the middle of a look: it is kept, and not remembered."""


def crash_behind(edge: int) -> Callable[[Survey], None]:
    """Make a function that gets looks, and crashes at the first one that ends behind this pointer."""

    def show(seen: Survey) -> None:
        if seen.rows[-1].end >= edge:
            raise Crashed

    return show


def publish_behind(client: Client, topic: str) -> int:
    """Publish until all windows but the last are over; returns the pointer with which that one begins."""
    edge = publish(client, topic) // WIDTH * WIDTH
    eventually(lambda: publish(client, topic, 1) >= edge + WIDTH, "time goes on")
    return edge


def follow_and_die(command: Command, client: Client, topic: str, folder: Path) -> None:
    """Follow by a command, and kill it when it has shown a window that it has kept."""
    following = command.start(
        "pipeline", "stats", topic, "--window", "1ms", "--follow", "0.1", "--format", "json",
        "--master", "local[2]", "--conf", f"spark.local.dir={folder}",
        "--checkpoint", str(folder / "checkpoint"), "--out", str(folder / "out"),
    )  # fmt: skip
    edge = publish_behind(client, topic)
    while pointers.parse(json.loads(following.line())["window"]["end"], 0) < edge:
        pass
    of_driver = [one for child in children(following.process.pid) for one in (child, *children(child))]
    following.process.kill()
    eventually(lambda: not any(map(runs, of_driver)), "its Java and its workers have ended", JOB_S)


@pytest.mark.timeout(2 * JOB_S)
def test_each_window_is_kept_once_through_crashes_of_the_driver(
    spark: Any, command: Command, client: Client, topic: str, tmp_path: Path
) -> None:
    publish(client, topic)
    checkpoint, out = str(tmp_path / "checkpoint"), tmp_path / "out"
    if LONG:
        follow_and_die(command, client, topic, tmp_path)
    for _ in range(2):
        show = crash_behind(publish_behind(client, topic))
        following = stats.following(
            topic, every=0.1, url=client.url, window="1ms", show=show, tell=print,
            checkpoint=checkpoint, out=str(out),
        )  # fmt: skip
        with pytest.raises(Crashed):
            following(spark)
    rows = kept(spark, out)
    starts = [row["start"] for row in rows]
    assert starts == sorted(set(starts))
    until = rows[-1]["last"]
    assert sum(row["records"] for row in rows) == client.count(topic, 0, until).records
    assert rows[0]["first"] == client.topic(topic).first


@pytest.mark.parametrize(
    ("typed", "status", "code"),
    [
        (("no-such-topic",), 3, "unknown_topic"),
        (("no/topic",), 2, "bad_topic"),
        (("orders", "--window", "5x"), 2, "bad_request"),
        (("orders", "--window", "0s"), 2, "bad_request"),
        (("orders", "--since", "yesterday"), 2, "bad_pointer"),
        (("orders", "--follow", "1", "--until", "now"), 2, "bad_request"),
        (("orders", "--checkpoint", "here"), 2, "bad_request"),
        (("orders", "--follow", "1", "--out", "there"), 2, "bad_request"),
    ],
)
def test_command_that_was_typed_wrongly_says_so_at_once(
    command: Command, client: Client, tmp_path: Path, typed: tuple[str, ...], status: int, code: str
) -> None:
    client.publish("orders", b"x")
    ended = command("pipeline", "stats", *typed)
    assert (ended.status, ended.out) == (status, b""), ended.err
    assert f"quoth: {code}: " in ended.err
    assert "hint: " in ended.err
    assert "Traceback" not in ended.err


def test_what_cannot_be_is_refused_before_there_is_a_session(
    client: Client, topic: str, tmp_path: Path
) -> None:
    client.publish(topic, b"x")
    with pytest.raises(NotFound):
        stats.job(f"{topic}-*", url=client.url)
    with pytest.raises(Disconnected):
        stats.job(topic, url="tcp://127.0.0.1:1", timeout=0.2)
    for window in ("1us", "minute", "200000w"):
        with pytest.raises(RequestError):
            stats.job(topic, url=client.url, window=window)
    with pytest.raises(RequestError, match="no path"):
        stats.following(topic, url=client.url, every=1, checkpoint="s3://there", show=print, tell=print)
