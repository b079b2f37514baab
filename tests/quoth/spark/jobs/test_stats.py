"""The stats on a real Spark: windows as lines, JSON and Parquet, followed through kills; typed wrongly."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.deadlines import eventually
from kit.machine.commands import Ended
from quoth import Client
from quoth.spark.jobs import stats
from quoth.spark.jobs.session import JobBroker
from quoth.spark.statistics.survey import Survey
from quothcli.application import run as run_command
from quothwire import pointer as pointers

WIDTH = 1_000


def publish(client: Client, topic: str, count: int = 3_000) -> int:
    """Publish records with ten keys in some windows; returns the last pointer."""
    keys = [b"key %d" % (number % 10) for number in range(count)]
    return client.publish(topic, [b"value"] * count, key=keys).last


def kept(spark: Any, out: Path, kind: str = "windows") -> list[dict[str, Any]]:
    """Read the stored windows or gaps, in the order of time."""
    frame = spark.read.parquet(str(out / kind))
    return sorted((row.asDict() for row in frame.collect()), key=lambda row: row.get("first", row["topic"]))


def test_windows_are_written_as_text_json_and_parquet(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    last = publish(client, topic)
    client.create_topic(f"{topic}-empty")
    client.cursor(topic, "report").commit(last - 100)
    out = tmp_path / "out"
    summary = stats.job([topic, f"{topic}-*"], broker=JobBroker(client.url), window="1ms", out=str(out))(
        spark
    )
    content = summary.content
    assert summary.good
    assert [one["records"] for one in content["topics"]] == [3_000, 0]
    assert sum(row["records"] for row in content["windows"]) == 3_000
    heading, *lines = summary.lines
    assert len(lines) == len(content["windows"]) + 3
    assert heading.split()[:2] == ["topic", "window"]
    assert lines[-2] == f"{topic}-empty: no records"
    assert re.fullmatch(rf"{topic}: cursor report is 100 records and \d+\.\d s behind at \S+Z", lines[-1])
    (lag,) = content["groups"]
    assert (lag["topic"], lag["group"], lag["mode"], lag["records"]) == (topic, "report", "cursor", 100)
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
    (kept_lag,) = kept(spark, out, "lags")
    assert kept_lag.pop("at").timestamp() == pointers.parse(lag.pop("at"), 0) / 1e6
    assert kept_lag == lag
    with pytest.raises(FileExistsError, match="exists already"):
        stats.job(topic, broker=JobBroker(client.url), out=str(out))


def test_one_giant_window_and_a_range_of_time(spark: Any, client: Client, topic: str) -> None:
    publish(client, topic)
    middle = publish(client, topic)
    publish(client, topic)
    (giant,) = stats.job(topic, broker=JobBroker(client.url), window="100000w")(spark).content["windows"]
    assert (giant["records"], giant["keys"], giant["behind_records"]) == (9_000, 10, 0)
    job = stats.job(
        topic, broker=JobBroker(client.url), window="100000w", since=middle - 99, until=middle + 1
    )
    (part,) = job(spark).content["windows"]
    assert (part["records"], part["last"], part["behind_records"]) == (100, middle, 3_000)
    nothing = stats.job(topic, broker=JobBroker(client.url), until=3)(spark)
    assert nothing.lines == [f"{topic}: no records"]


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


def test_each_window_is_kept_once_through_crashes_of_the_driver(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    publish(client, topic)
    checkpoint, out = str(tmp_path / "checkpoint"), tmp_path / "out"
    for _ in range(2):
        show = crash_behind(publish_behind(client, topic))
        following = stats.following(
            topic, every=0.1, broker=JobBroker(client.url), window="1ms", show=show,
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


@pytest.mark.parametrize("as_json", [False, True])
def test_each_look_shows_the_lags_of_groups_also_without_a_window(
    spark: Any, client: Client, topic: str, as_json: bool
) -> None:
    publish(client, topic, 10)
    client.group(topic, "billing").info()
    looks: list[str] = []

    def write(lines: str) -> None:
        looks.append(lines)
        publish(client, topic, 1)
        if len(looks) == 3:
            raise Crashed

    show = stats.shown(write, as_json=as_json)
    job = stats.following(topic, every=0.1, broker=JobBroker(client.url), window="100000w", show=show)
    with pytest.raises(Crashed):
        job(spark)
    if as_json:
        lags = [json.loads(look)["group"] for look in looks]
        assert [(lag["group"], lag["mode"], lag["records"]) for lag in lags] == [
            ("billing", "at_least_once", 10 + number) for number in range(3)
        ]
    else:
        assert [re.findall("group billing is ([0-9]+) records", look) for look in looks] == [
            [str(10 + number)] for number in range(3)
        ]
        assert [look.startswith("topic ") for look in looks] == [True, False, False]


def test_mistyped_command_is_refused(client: Client, topic: str, capfd: pytest.CaptureFixture[str]) -> None:
    client.publish(topic, b"x")
    for typed, status, code in (
        (["no/topic"], 2, "bad_topic"),
        ([f"{topic}-*"], 3, "unknown_topic"),
        ([topic, "--window", "5x"], 2, "bad_request"),
        ([topic, "--window", "0s"], 2, "bad_request"),
        ([topic, "--window", "1us"], 2, "bad_request"),
        ([topic, "--window", "200000w"], 2, "bad_request"),
        ([topic, "--since", "yesterday"], 2, "bad_pointer"),
        ([topic, "--follow", "1", "--until", "now"], 2, "bad_request"),
        ([topic, "--checkpoint", "here"], 2, "bad_request"),
        ([topic, "--follow", "1", "--checkpoint", "s3://there"], 2, "bad_request"),
        ([topic, "--follow", "1", "--out", "there"], 2, "bad_request"),
        ([topic, "--url", "tcp://127.0.0.1:1", "--timeout", "0.2"], 4, "disconnected"),
    ):
        ended = run_command(["pipeline", "stats", "--url", client.url, *typed])
        out, err = capfd.readouterr()
        happened, _ = Ended(ended, out.encode(), err).refused(status)
        assert happened.startswith(f"quoth: {code}: "), typed
