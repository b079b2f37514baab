"""The ways of `quoth bench spark` read and write the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.spark.archives import of_archive, of_topic
from quoth import Client, QuothError
from quoth.spark import read_topic
from quothbench.load.rates import Payload
from quothbench.load.target import Target
from quothbench.load.topics import BenchTopics
from quothbench.spark.plan import PAIRS, Figure, SparkPlan
from quothbench.spark.ways import WAYS, Meter, Output, Rows, Scene, WaySample, copied_to_parquet, fill, spent

COUNT = 2_500


@pytest.fixture
def scene(spark: Any, client: Client, topic: str, tmp_path: Path) -> Scene:
    """Some rows, in two tasks."""
    fill(client, topic, COUNT, 100)
    return Scene(spark, client, copied_to_parquet(spark, client, topic, tmp_path, 2), 2)


@pytest.fixture
def topics(client: Client) -> Iterator[BenchTopics]:
    """Topics that ways write to."""
    with BenchTopics(client, Payload(1, 1)) as topics:
        yield topics


def test_all_sources_have_the_same_rows(scene: Scene) -> None:
    spark, client, rows, _ = scene
    source = read_topic(spark, rows.topic, url=client.url)
    frames = [source, spark.read.parquet(rows.parquet)]
    found = [sorted(frame.collect(), key=lambda row: row.offset) for frame in frames]
    assert found[0] == found[1]
    assert len({bytes(row.value) for row in found[0]}) == COUNT, "Parquet keeps once what repeats"
    assert {len(row.value) for row in found[0]} == {100}


@pytest.mark.parametrize("name", WAYS)
def test_measured_way_leaves_nothing(
    scene: Scene, broker: BrokerProcess, topics: BenchTopics, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "places"
    folder.mkdir()
    there = scene.client.topics()
    meter = Meter(scene.spark, Target(broker.url, broker.pid), topics, folder)
    sample = meter.measure(WAYS[name], scene)
    assert sample.seconds > 0
    assert sample.java is not None
    assert 0 <= sample.java < 100
    assert not list(folder.iterdir())
    assert scene.client.topics() == there


def test_processor_time_is_unknown_where_that_of_the_broker_is(
    scene: Scene, broker: BrokerProcess, topics: BenchTopics, tmp_path: Path
) -> None:
    meter = Meter(scene.spark, Target(broker.url, 0), topics, tmp_path)
    sample = meter.measure(WAYS["source"], scene)
    assert (sample.broker, sample.processor) == (None, None)
    assert sample.java is not None
    assert WaySample(1.0, 2.0, 3.0, 0.0).processor == 5.0


def test_worker_that_ended_meanwhile_is_not_subtracted() -> None:
    assert spent({1: 5.0, 2: 1.0}, {1: 7.0, 3: 0.5}) == 2.5


def test_archive_and_sink_hold_all_rows(scene: Scene, topics: BenchTopics, tmp_path: Path) -> None:
    output = Output(tmp_path / "archive", *topics.make(1))
    WAYS["archive"](scene, output)
    assert of_archive(output.folder) == of_topic(scene.client, scene.rows.topic)
    WAYS["sink"](scene, output)
    written = [value for batch in scene.client.batches(output.topic) for value in batch.values]
    assert sorted(written) == sorted(
        value for batch in scene.client.batches(scene.rows.topic) for value in batch.values
    )


def test_missing_rows_are_an_error() -> None:
    with pytest.raises(QuothError, match="the sink: 9 rows instead of 10"):
        Rows("", "", "", 10, 0).check(9, "the sink")


def test_plan_has_equal_bytes_of_each_size_and_every_way_in_a_pair() -> None:
    plan = SparkPlan(list(Figure), 100_000, (100, 1_000), 1)
    assert [plan.count(size) for size in plan.sizes] == [100_000, 10_000]
    assert {name for pair in PAIRS for name in pair[:2]} == set(WAYS)
    assert {pair[0] for pair in PAIRS} == set(Figure) - {Figure.TASKS}
