"""Converts a condition on the time of records to the options `since` and `until`, so that the broker skips
the rest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from quoth.spark.options import AHEAD_US
from quoth.timestamps import now
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
