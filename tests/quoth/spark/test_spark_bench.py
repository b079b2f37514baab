"""The ways of `quoth bench spark` read and write the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.spark.archives import of_archive, of_topic
from quoth import Client, QuothError
from quothbench.load.servers import Target
from quothbench.load.topics import BenchTopics
from quothbench.spark.command import Figure
from quothbench.spark.ways import (
    PAIRS,
    WAYS,
    Meter,
    Output,
    Rows,
    Scene,
    SparkPlan,
    WaySample,
    copied_to_parquet,
    fill,
    spent,
)

COUNT = 2_500


@pytest.fixture
def scene(spark: Any, client: Client, topic: str, tmp_path: Path) -> Scene:
    """Some rows, in two tasks."""
    fill(client, topic, COUNT, 100)
    return Scene(spark, client, copied_to_parquet(spark, client, topic, tmp_path, 2), 2)


@pytest.fixture
def topics(client: Client) -> Iterator[BenchTopics]:
    """Topics that ways write to."""
    with BenchTopics(client) as topics:
        yield topics


def test_measured_way_leaves_nothing(
    scene: Scene, broker: BrokerProcess, topics: BenchTopics, tmp_path: Path
) -> None:
    folder = tmp_path / "places"
    folder.mkdir()
    there = scene.client.topics()
    meter = Meter(scene.spark, Target(broker.url, broker.pid), topics, folder)
    for name, way in WAYS.items():
        sample = meter.measure(way, scene)
        assert sample.seconds > 0, name
        assert sample.java is not None, name
        assert 0 <= sample.java < 100, name
        assert not list(folder.iterdir()), name
        assert scene.client.topics() == there, name
    of_another_machine = Meter(scene.spark, Target(broker.url, 0), topics, folder)
    sample = of_another_machine.measure(WAYS["source"], scene)
    assert (sample.broker, sample.processor) == (None, None)
    assert sample.java is not None


def test_all_ways_have_the_same_rows(scene: Scene, topics: BenchTopics, tmp_path: Path) -> None:
    found = [sorted(frame.collect(), key=lambda row: row.offset) for frame in (scene.topic, scene.parquet)]
    assert found[0] == found[1]
    assert len({bytes(row.value) for row in found[0]}) == COUNT, "Parquet keeps once what repeats"
    assert {len(row.value) for row in found[0]} == {100}
    output = Output(tmp_path / "archive", *topics.make(1))
    WAYS["archive"](scene, output)
    assert of_archive(output.folder) == of_topic(scene.client, scene.rows.topic)
    WAYS["sink"](scene, output)
    written = [value for batch in scene.client.batches(output.topic) for value in batch.values]
    assert sorted(written) == sorted(bytes(row.value) for row in found[0])


def test_figures_are_of_equal_bytes_and_whole_rows_and_every_way_is_in_a_pair() -> None:
    with pytest.raises(QuothError, match="the sink: 9 rows instead of 10"):
        Rows("", "", "", 10, 0).check(9, "the sink")
    assert WaySample(1.0, 2.0, 3.0, 0.0).processor == 5.0
    assert spent({1: 5.0, 2: 1.0}, {1: 7.0, 3: 0.5}) == 2.5, "a worker that has ended is not subtracted"
    plan = SparkPlan(list(Figure), 100_000, (100, 1_000), 1)
    assert [plan.count(size) for size in plan.sizes] == [100_000, 10_000]
    assert {name for pair in PAIRS for name in pair[:2]} == set(WAYS)
    assert [pair[0] for pair in PAIRS] == list(Figure)
