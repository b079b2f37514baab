"""The example of a cleaned stream does what it says, however often its driver is killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.deadlines import eventually, pause
from kit.machine.processes import children, runs
from kit.scale import long_form
from kit.spark.sparks import JOB_S
from quoth import Client, Message

EXAMPLE = Path(__file__).parents[3] / "client" / "examples" / "clean_orders.py"
BAD = {
    **dict.fromkeys([b"", b"{}", b'{"id": null}'], "no id"),
    **dict.fromkeys([b"{", b"\xff", b"7", b"null", b'[{"id": 1}]'], "no JSON object"),
}
"""Values that are bad, with the reason."""

Typed = tuple[str, str, str, str, str]
"""The URL, the topic, the clean one, the one of dead records, and the checkpoint."""


@contextmanager
def running(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The example, until it is killed; its Java and its workers have ended then, too."""
    submit = (
        f"--master local[2] --conf spark.ui.enabled=false --conf spark.local.dir={directory} pyspark-shell"
    )
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": submit, "PYSPARK_PYTHON": sys.executable}
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLE), *arguments], env=environment, stdout=log, stderr=log
        )
        try:
            yield process
        finally:
            of_driver = [one for child in children(process.pid) for one in (child, *children(child))]
            process.kill()
            process.wait()
            eventually(lambda: not any(map(runs, of_driver)), "its Java and its workers have ended", JOB_S)


@contextmanager
def following(spark: Any, example: Any, *arguments: str) -> Iterator[None]:
    """The example in the session that there is, until its query is stopped; that has not failed."""
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    with ThreadPoolExecutor() as pool:
        main = pool.submit(example.main, *arguments)
        try:
            eventually(lambda: spark.streams.active or main.done(), "it follows", JOB_S)
            if main.done():
                main.result()  # raises what it failed with
            yield
        finally:
            for query in spark.streams.active:
                query.stop()
            spark.conf.set("spark.sql.shuffle.partitions", partitions)  # `main` has chosen another number
        main.result()


def oracle(messages: list[Message]) -> tuple[dict[int, bytes], dict[int, str]]:
    """Compute the expected values and reasons of the two topics, by the pointers of the input."""
    clean: dict[int, bytes] = {}
    dead: dict[int, str] = {}
    seen = set()
    for one in messages:
        if one.value in BAD:
            dead[one.pointer] = BAD[one.value]
        elif (name := json.loads(one.value)["id"]) not in seen:
            seen.add(name)
            clean[one.pointer] = one.value
    return clean, dead


def read(client: Client, topic: str) -> list[Message]:
    """All of a topic, nothing if there is none."""
    return list(client.read(topic, limit=10**6)) if topic in client.topics() else []


def publish(client: Client, topic: str, rng: random.Random) -> None:
    """Publish good ones, some of them again and again, and bad ones."""
    values: list[bytes] = []
    for number in range(rng.randint(200, 1_000)):
        name = rng.choice([f"new {rng.random()}", f"again {rng.randint(0, 50)}"])
        values.append(
            rng.choice(list(BAD)) if rng.random() < 0.2 else json.dumps({"id": name, "n": number}).encode()
        )
    client.publish(topic, values, key=[b"key %d" % row for row in range(len(values))])


@pytest.fixture
def example() -> Any:
    """The example as a module."""
    spec = spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def typed(broker: BrokerProcess, topic: str, tmp_path: Path) -> Typed:
    """The arguments of the example."""
    return broker.url, topic, f"{topic}-clean", f"{topic}-dead", str(tmp_path / "checkpoint")


@pytest.mark.timeout(4 * JOB_S)
def test_every_record_is_clean_or_dead_once_or_a_duplicate(
    spark: Any, example: Any, client: Client, typed: Typed, rng: random.Random
) -> None:
    _, topic, clean, dead, _ = typed
    for _ in range(2):
        publish(client, topic, rng)
    expected_clean, expected_dead = oracle(read(client, topic))
    with following(spark, example, *typed):
        eventually(
            lambda: (
                len(read(client, clean)) >= len(expected_clean)
                and len(read(client, dead)) >= len(expected_dead)
            ),
            "all is cleaned", JOB_S,
        )  # fmt: skip
    of_clean, of_dead = read(client, clean), read(client, dead)
    assert len(of_clean) == len(expected_clean)
    assert {int(one.headers["pointer"]): one.value for one in of_clean} == expected_clean
    assert len(of_dead) == len(expected_dead)
    assert {int(one.headers["pointer"]): one.headers["reason"].decode() for one in of_dead} == expected_dead
    keys = {one.pointer: (one.key, one.value) for one in read(client, topic)}
    assert all(keys[int(one.headers["pointer"])] == (one.key, one.value) for one in [*of_clean, *of_dead])


@long_form
@pytest.mark.timeout(4 * JOB_S)
def test_every_record_is_clean_or_dead_once_or_a_duplicate_whenever_the_driver_is_killed(
    spark: Any, example: Any, client: Client, typed: Typed, tmp_path: Path, rng: random.Random
) -> None:
    _, topic, clean, _, _ = typed
    publish(client, topic, rng)
    for _ in range(10):
        before = client.topic(clean).count if clean in client.topics() else 0
        with running(tmp_path, *typed) as driver:
            publish(client, topic, rng)
            eventually(
                lambda: driver.poll() is not None or len(read(client, clean)) > before,  # noqa: B023
                "it cleans", JOB_S,
            )  # fmt: skip
            assert driver.poll() is None, (tmp_path / "log").read_text()
            publish(client, topic, rng)
            pause(rng.uniform(0, 2))
    test_every_record_is_clean_or_dead_once_or_a_duplicate(spark, example, client, typed, rng)


def test_record_repeated_within_the_window_is_a_duplicate(spark: Any, example: Any) -> None:
    width = example.WINDOW_US
    offsets = {"a": [5, 5 + width, 6 + 2 * width, 7 + 2 * width], "b": [6, 7 + width]}
    rows = [(None, json.dumps({"id": name}), one) for name, all_of_it in offsets.items() for one in all_of_it]
    frame = spark.createDataFrame(rows, "key binary, value string, offset long")
    kept = example.unique(example.judged(frame)).collect()
    assert sorted((row["id"], row["offset"]) for row in kept) == [
        ("a", 5), ("a", 6 + 2 * width), ("b", 6), ("b", 7 + width)
    ]  # fmt: skip
