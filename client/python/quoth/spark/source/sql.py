"""Topics in SQL: views by their names, and options from a condition on the time of records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from quoth.client import DEFAULT_URL, connect
from quoth.spark.options import AHEAD_US
from quoth.spark.source.ranges import named
from quoth.spark.source.source import read_topic
from quoth.timestamps import Timestamp, now
from quothwire.errors import error
from quothwire.pointer import POINTER_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMN = "timestamp"
_NOTHING = {"until": "0"}
"""The options of a range without records."""
_BETWEEN = re.compile(r"\bBETWEEN\b(?P<low>.+?)\bAND\b(?P<high>.+?)(?=\bAND\b|$)", re.IGNORECASE | re.DOTALL)
_AND = re.compile(r"\bAND\b", re.IGNORECASE)
_COMPARED = re.compile(r"\s*(?P<column>`?\w+`?)\s*(?P<sign>>=|<=|==|=|>|<)(?P<time>[^<>=].*)", re.DOTALL)
_HINT = (
    "like \"timestamp >= '2026-01-02' AND timestamp < '2026-01-03'\": comparisons of timestamp with =, "
    "<, <=, >, >= or BETWEEN, joined by AND; put all else into where()"
)


def register_views(
    spark: SparkSession,
    topics: str | Iterable[str] = "*",
    *,
    url: str = DEFAULT_URL,
    key: str | None = None,
    prefix: str = "",
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    columns: Sequence[str] | None = None,
    **options: str,
) -> list[str]:
    """Create or replace a temporary view for each topic; returns the names of the views.

    topics: names and patterns; all by default. The name of a view is `prefix` and the topic's name, in
    backticks if it has dots or signs: SELECT * FROM `orders.eu`. key: the path of the key file, on the driver
    and all executors. since, until, columns, options: as for `read_topic`. A view has the records of its
    first use: call this again for newer records and new topics. Patterns skip topics with a comma or a
    backtick in their names.

    Raises `NotFound` ``unknown_topic`` if no topic matches, ``bad_request`` for two topics whose names differ
    only in case, which Spark does not distinguish, for a name with a comma or a backtick, and for a prefix
    with a backtick.
    """
    if "`" in prefix:
        text = f"prefix {prefix!r} has a backtick, which ends a name in SQL"
        raise error("bad_request", text, "leave it out")
    wanted = [topics] if isinstance(topics, str) else list(topics)
    views: dict[str, str] = {}
    with connect(url, key=key) as broker:
        found = named(broker, wanted)
    for name in found:
        if not set(name).isdisjoint(",`"):
            if name in wanted:
                text = f"topic {name!r} has a comma or a backtick: it can be no view"
                raise error("bad_request", text, "read it by option subscribePattern")
        elif (other := views.setdefault(name.lower(), name)) != name:
            text = f"topics {other!r} and {name!r} would be one view, because Spark ignores case"
            raise error("bad_request", text, "name the topics, in two calls with another prefix")
    for name in views.values():
        bounds: dict[str, Any] = {"since": since, "until": until, "columns": columns, **options}
        if key is not None:
            bounds["key"] = key
        frame = read_topic(spark, name, url=url, **bounds)
        frame.createOrReplaceTempView(f"`{prefix}{name}`")
    return [prefix + name for name in views.values()]


def time_options(spark: SparkSession, condition: str) -> dict[str, Any]:
    """The options ``since`` and ``until`` for a condition on the column timestamp.

        times = time_options(spark, "timestamp >= current_timestamp() - INTERVAL 1 HOUR")
        read_topic(spark, "orders", url=url, **times)

    condition: SQL, comparisons of timestamp with constants, joined by AND. Spark evaluates the constants
    once, now, in the time zone of the session. A table with these options has exactly the rows that `where`
    with the condition would leave, possibly none. Raises ``bad_request`` for another kind of condition, and
    Spark's error for one that is not SQL.
    """
    without_between = _BETWEEN.sub(rf">= \g<low> AND {COLUMN} <= \g<high>", condition)
    parts = [_compared(part, condition) for part in _AND.split(without_between)]
    columns = [f"unix_micros(CAST(({time}) AS TIMESTAMP)) AS t{n}" for n, (_, time) in enumerate(parts)]
    found = spark.sql(f"SELECT {', '.join(columns)}").collect()[0]
    since, until = [0], [POINTER_MAX]
    for (sign, time), at in zip(parts, found, strict=True):
        if at is None:
            raise error("bad_request", f"{time.strip()} is no time", _HINT)
        if ">" in sign or sign == "=":
            since.append(at + (sign == ">"))
        if "<" in sign or sign == "=":
            until.append(at + (sign != "<"))
    return _options(max(since), max(0, min(until)))


def _options(since: int, until: int) -> dict[str, Any]:
    """The options of a range, without bounds that exclude no record."""
    if since > now() + AHEAD_US:  # the reader refuses such a beginning
        return dict(_NOTHING)
    found = {"since": str(since)} if since > 0 else {}
    return found | ({"until": str(until)} if until < POINTER_MAX else {})


def _compared(part: str, condition: str) -> tuple[str, str]:
    """The sign of a comparison, and the time as SQL."""
    found = _COMPARED.fullmatch(part)
    has_or = re.search(r"\b(OR|NOT)\b", part, re.IGNORECASE)
    if found is None or found["column"].strip("`").lower() != COLUMN or has_or:
        raise error("bad_request", f"{condition!r:.200} is no condition on the time alone", _HINT)
    return found["sign"].replace("==", "="), found["time"]
