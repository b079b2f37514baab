"""Views of all topics, options of a time condition, JSON by a schema."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from kit.scale import times
from quoth import Client, NotFound, RequestError
from quoth.spark import (
    from_json,
    read_topic,
    register_views,
    time_options,
    write_corrupt,
)
from quothwire.pointer import to_text

BAD = [b"{", b"", b"\xff", b"7", b"null", b"[1]", b'[{"id": 1}]', b'{"id": "x"}', b'{"id": 1} x', b'"text"']
"""Values that are no object, no JSON, or have another type."""


@pytest.fixture
def utc(spark: Any) -> Iterator[Any]:
    """The session, which a test may give another time zone."""
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def values(rows: Any) -> list[bytes]:
    """The values of a table, sorted."""
    return sorted(bytes(row.value) for row in rows.collect())


def test_each_topic_is_a_view_by_its_name(spark: Any, client: Client, topic: str) -> None:
    for name, count in ((f"{topic}.eu", 2), (f"{topic}.us-1", 3)):
        client.publish(name, [b"x"] * count)
    client.publish(f"{topic}.a,b", b"x")
    made = register_views(spark, f"{topic}.*", url=client.url, columns=["value"])
    try:
        assert made == [f"{topic}.eu", f"{topic}.us-1"]
        counts = [spark.sql(f"SELECT count(value) FROM `{name}`").first()[0] for name in made]
        assert counts == [2, 3]
        client.publish(f"{topic}.eu", b"x")
        register_views(spark, f"{topic}.eu", url=client.url)
        assert spark.sql(f"SELECT count(*) FROM `{topic}.eu`").first()[0] == 3
    finally:
        for name in made:
            spark.catalog.dropTempView(f"`{name}`")


def test_topics_that_can_be_no_views_are_refused(spark: Any, client: Client, topic: str) -> None:
    for name in (f"{topic}.a,b", f"{topic}.a`b"):
        client.publish(name, b"x")
        for topics in (name, iter([name])):
            with pytest.raises(RequestError, match="it can be no view"):
                register_views(spark, topics, url=client.url)
    assert register_views(spark, f"{topic}.*", url=client.url) == []
    with pytest.raises(RequestError, match="has a backtick"):
        register_views(spark, f"{topic}.*", url=client.url, prefix="p`")
    for name in (f"{topic}.eu", f"{topic}.EU"):
        client.publish(name, b"x")
    with pytest.raises(RequestError, match="Spark ignores case"):
        register_views(spark, f"{topic}.*", url=client.url)
    with pytest.raises(NotFound):
        register_views(spark, f"{topic}.none", url=client.url)


def test_options_of_a_condition_return_the_rows_of_the_condition(
    utc: Any, client: Client, topic: str, rng: random.Random
) -> None:
    pointers = [client.publish(topic, b"%d" % number).first for number in range(8)]
    table = read_topic(utc, topic, url=client.url)
    utc.conf.set("spark.sql.session.timeZone", "America/New_York")
    assert time_options(utc, "timestamp >= '2026-01-02'") == {"since": "1767330000000000"}
    assert time_options(utc, "timestamp < '2026-01-02' + INTERVAL 1 DAY") == {"until": "1767416400000000"}
    for _ in range(times(1, 4)):
        low, high = sorted(rng.choices(pointers, k=2))
        first, last = (f"TIMESTAMP '{to_text(at)}'" for at in (low, high))
        for condition in (
            f"timestamp >= {first} AND timestamp < {last}",
            f"`timestamp` > {first} and TIMESTAMP <= {last}",
            f"timestamp BETWEEN {first} AND {last} AND timestamp > {first}",
            f"timestamp = {first}",
        ):
            read = read_topic(utc, topic, url=client.url, **time_options(utc, condition))
            assert values(read) == values(table.where(condition)), condition


def test_condition_on_times_without_records_reads_nothing(spark: Any, client: Client, topic: str) -> None:
    assert set(time_options(spark, "timestamp > current_timestamp() - INTERVAL 1 HOUR")) == {"since"}
    client.publish(topic, [b"x"] * 3)
    nothing: dict[str, Any] = {"until": "0"}
    assert read_topic(spark, topic, url=client.url, **nothing).count() == 0
    for condition, options in (
        ("timestamp < '1970-01-01'", nothing),
        ("timestamp < '1960-01-01' AND timestamp >= '1950-01-01'", nothing),
        ("timestamp >= current_timestamp() + INTERVAL 1 DAY", nothing),
        ("timestamp >= '200000-01-01'", nothing),
        ("timestamp >= '1960-01-01' AND timestamp < '200000-01-01'", {}),
    ):
        assert time_options(spark, condition) == options, condition


def test_condition_that_is_none_on_the_time_is_refused(spark: Any) -> None:
    for condition, text in (
        ("value = 'x'", "no condition on the time alone"),
        ("timestamp > '2026-01-02' OR timestamp < '2025-01-01'", "no condition on the time alone"),
        ("NOT timestamp > '2026-01-02'", "no condition on the time alone"),
        ("'2026-01-02' < timestamp", "no condition on the time alone"),
        ("timestamp <> '2026-01-02'", "no condition on the time alone"),
        ("timestamp > NULL", "NULL is no time"),
        ("", "'' is no condition"),
    ):
        with pytest.raises(RequestError, match=text):
            time_options(spark, condition)


def test_json_values_become_columns_and_invalid_ones_are_separated(
    spark: Any, client: Client, topic: str
) -> None:
    good = [{"id": 1, "item": "cup"}, {"item": "tea"}, {}, {"id": 2, "more": [1]}]
    spaced = [b'  {"id": 3}', b'{"id": 4}\n', b'\r\n\t{"id": 5}\t\r\n ', b'{\n\t"id": 6\n}']
    client.publish(topic, [*(json.dumps(one).encode() for one in good), *spaced, *BAD])
    rows = from_json(read_topic(spark, topic, url=client.url), "id LONG, item STRING").orderBy("offset")
    found = [(row.json and row.json.asDict(), row._corrupt) for row in rows.collect()]
    assert [(one, bad) for one, bad in found if one is not None] == [
        ({"id": 1, "item": "cup"}, None),
        ({"id": None, "item": "tea"}, None),
        ({"id": None, "item": None}, None),
        ({"id": 2, "item": None}, None),
        *(({"id": number, "item": None}, None) for number in (3, 4, 5, 6)),
    ]
    assert [bytes(bad) for one, bad in found if one is None] == BAD


def test_bad_values_go_to_a_topic_once_in_each_batch_with_where_they_were(
    spark: Any, client: Client, topic: str
) -> None:
    values = [b'{"id": 1}', b"bad", b'{"id": 2}']
    first = client.publish(topic, values, key=[b"a", b"b", b"c"]).first
    rows = from_json(read_topic(spark, topic, url=client.url), "id LONG")
    for version in (0, 1, 1):
        good = write_corrupt(rows, f"{topic}-dead", url=client.url, application="clean", version=version)
    assert sorted(row.id for row in good.select("json.id").collect()) == [1, 2]
    assert "_corrupt" not in good.columns
    dead = client.read(f"{topic}-dead")
    origin = {"topic": topic.encode(), "pointer": b"%d" % (first + 1)}
    assert [(one.value, one.key, one.headers) for one in dead] == [(b"bad", b"b", origin)] * 2
    for half in ({"application": "clean"}, {"version": 0}):
        with pytest.raises(RequestError, match="application and version"):
            write_corrupt(rows, "dead", **half)
