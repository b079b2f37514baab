"""Registers topics as temporary views, so that SQL finds them by their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from quoth.client import DEFAULT_URL, connect
from quoth.spark.source.ranges import named
from quoth.spark.source.source import read_topic
from quoth.timestamps import Timestamp
from quothwire.errors import error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_views(
    spark: SparkSession,
    topics: str | Iterable[str] = "*",
    *,
    url: str = DEFAULT_URL,
    prefix: str = "",
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    columns: Sequence[str] | None = None,
    **options: str,
) -> list[str]:
    """Create or replace a temporary view for each topic; returns the names of the views.

    topics: names and patterns; all by default. The name of a view is `prefix` and the topic's name, in
    backticks if it has dots or signs: SELECT * FROM `orders.eu`. since, until, columns, options: as for
    `read_topic`. A view has the records of its first use: call this again for newer records and new topics.
    Patterns skip topics with a comma or a backtick in their names.

    Raises `NotFound` ``unknown_topic`` if no topic matches, ``bad_request`` for two topics whose names differ
    only in case, which Spark does not distinguish, for a name with a comma or a backtick, and for a prefix
    with a backtick.
    """
    if "`" in prefix:
        raise error(
            "bad_request", f"prefix {prefix!r} has a backtick, which ends a name in SQL", "leave it out"
        )
    wanted = [topics] if isinstance(topics, str) else list(topics)
    with connect(url) as broker:
        found = named(broker, wanted)
    for name in found:
        if _has_no_view(name) and name in wanted:
            hint = "read it by option subscribePattern"
            raise error("bad_request", f"topic {name!r} has a comma or a backtick: it can be no view", hint)
    found = [name for name in found if not _has_no_view(name)]
    views: dict[str, str] = {}
    for name in found:
        other = views.setdefault(name.lower(), name)
        if other != name:
            text = f"topics {other!r} and {name!r} would be one view, because Spark ignores case"
            raise error("bad_request", text, "name the topics, in two calls with another prefix")
    for name in found:
        bounds: dict[str, Any] = {"since": since, "until": until, "columns": columns, **options}
        frame = read_topic(spark, name, url=url, **bounds)
        frame.createOrReplaceTempView(f"`{prefix}{name}`")
    return [prefix + name for name in found]


def _has_no_view(topic: str) -> bool:
    return not set(topic).isdisjoint(",`")
