"""JSON values as columns by a schema; what does not parse goes to a column, or to a topic of dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quoth.client import DEFAULT_URL
from quothwire.errors import error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CORRUPT = "_corrupt"
_INNER = "_quoth_corrupt"
_BLANKS = " \t\n\r"
"""JSON's whitespace."""


def from_json(
    rows: DataFrame, schema: str, *, value: str = "value", into: str = "json", corrupt: str = CORRUPT
) -> DataFrame:
    """The rows with two more columns: what their JSON says, and the values that do not parse.

    schema: as DDL, like ``id LONG, at TIMESTAMP, items ARRAY<STRING>``. value: the column with the JSON,
    bytes or text. into: the struct of the schema; null where the value does not parse. corrupt: the value
    where it does not parse, as it was, else null: what is no object, no JSON, or has a field of another type.
    A field that is missing is null, one that the schema does not name is left out. For tables and streams.
    Of two objects in one value Spark reads the first and ignores the second.
    """
    from pyspark.sql import functions as f

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _INNER}
    found = f.from_json(f.col(value).cast("string"), f"{schema}, {_INNER} STRING", options)
    held = rows.withColumn(into, found)
    text = f.btrim(f.col(value).cast("string"), f.lit(_BLANKS))
    is_object = text.startswith("{") & text.endswith("}")  # Spark takes the first object of a list, too
    is_bad = f.col(into).isNull() | f.col(into)[_INNER].isNotNull() | ~is_object
    held = held.withColumn(corrupt, f.when(f.coalesce(is_bad, f.lit(True)), f.col(value)))
    good = f.when(f.col(corrupt).isNull(), f.col(into).dropFields(_INNER))
    return held.withColumn(into, good)


def write_corrupt(
    rows: DataFrame,
    topic: str,
    *,
    url: str = DEFAULT_URL,
    application: str | None = None,
    version: int | None = None,
    corrupt: str = CORRUPT,
) -> DataFrame:
    """Write the values that do not parse into a topic of dead letters; returns the other rows.

    rows: of `from_json`, a table or a micro-batch of foreachBatch. A dead letter has the value, the key if
    there is one, and headers that say from which topic it is and which pointer it had there: ``topic`` and
    ``pointer``. application, version: ``txnAppId`` and ``txnVersion`` of the sink, both or neither. They make
    a repeated write the same one: the query's id or a name, and the number of the micro-batch.

    Raises ``bad_request`` for one of them without the other.
    """
    from pyspark.sql import functions as f

    if (application is None) != (version is None):
        hint = "give both, in foreachBatch the query's id and the number of the micro-batch, or neither"
        raise error("bad_request", "application and version name a write together", hint)
    there = [name for name in ("key",) if name in rows.columns]
    headers = [
        _header(name, f.col(column))
        for name, column in (("topic", "topic"), ("pointer", "offset"))
        if column in rows.columns
    ]
    chosen = [f.col(corrupt).alias("value"), *map(f.col, there)]
    if headers:
        chosen.append(f.array(*headers).alias("headers"))
    options = {"url": url, "topic": topic}
    if application is not None:
        options |= {"txnAppId": application, "txnVersion": str(version)}
    bad = rows.where(f.col(corrupt).isNotNull()).select(*chosen)
    bad.write.format("quoth").options(**options).mode("append").save()
    return rows.where(f.col(corrupt).isNull()).drop(corrupt)


def _header(name: str, value: Column) -> Column:
    from pyspark.sql import functions as f

    text = value.cast("string").cast("binary")
    return f.struct(f.lit(name).alias("key"), text.alias("value"))
