"""Parses JSON values by a schema, and writes those that do not parse to a topic of dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quoth.client import DEFAULT_URL
from quothwire.errors import error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CORRUPT = "_corrupt"
_INNER = "_quoth_corrupt"
_BLANKS = " \t\n\r"
"""JSON's whitespace."""


def from_json(
    rows: DataFrame, schema: str, *, value: str = "value", into: str = "json", corrupt: str = CORRUPT
) -> DataFrame:
    """Add two columns to a table or a stream: the parsed JSON, and the values that do not parse.

    schema: DDL such as ``id LONG, at TIMESTAMP, items ARRAY<STRING>``. value: the column with the JSON, bytes
    or text. into: the new column with the struct of the schema, null where the value does not parse. corrupt:
    the new column with the values that are not JSON, not an object, or have a field of another type; else
    null. A missing field is null. A field that the schema does not name is left out. If a value holds two
    objects, Spark reads the first one and ignores the second.
    """
    from pyspark.sql import functions as f

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _INNER}
    parsed = f.from_json(f.col(value).cast("string"), f"{schema}, {_INNER} STRING", options)
    rows = rows.withColumn(into, parsed)
    text = f.btrim(f.col(value).cast("string"), f.lit(_BLANKS))
    is_object = text.startswith("{") & text.endswith("}")  # Spark takes the first object of a list, too
    is_bad = f.col(into).isNull() | f.col(into)[_INNER].isNotNull() | ~is_object
    rows = rows.withColumn(corrupt, f.when(f.coalesce(is_bad, f.lit(True)), f.col(value)))
    return rows.withColumn(into, f.when(f.col(corrupt).isNull(), f.col(into).dropFields(_INNER)))


def write_corrupt(
    rows: DataFrame,
    topic: str,
    *,
    url: str = DEFAULT_URL,
    application: str | None = None,
    version: int | None = None,
    corrupt: str = CORRUPT,
    key: str | None = None,
) -> DataFrame:
    """Write the values that do not parse to a topic of dead letters; returns the other rows.

    rows: of `from_json`, a table or a micro-batch of foreachBatch. A dead letter has the value, the key if
    there is one, and the headers ``topic`` and ``pointer`` with its origin. application, version:
    ``txnAppId`` and ``txnVersion`` of the sink, so that a repeated write is stored once: the query's id or a
    name, and the number of the micro-batch. key: the option of the sink, a path.

    Raises ``bad_request`` for an application without a version, or the reverse.
    """
    from pyspark.sql import functions as f

    if (application is None) != (version is None):
        hint = "give both, in foreachBatch the query's id and the number of the micro-batch, or neither"
        raise error("bad_request", "application and version name a write together", hint)
    origin = {"topic": "topic", "pointer": "offset"}
    headers = [
        f.struct(f.lit(name).alias("key"), f.col(column).cast("string").cast("binary").alias("value"))
        for name, column in origin.items()
        if column in rows.columns
    ]
    columns = [f.col(corrupt).alias("value")]
    if "key" in rows.columns:
        columns.append(f.col("key"))
    if headers:
        columns.append(f.array(*headers).alias("headers"))
    options = {"url": url, "topic": topic}
    if key is not None:
        options["key"] = key
    if application is not None:
        options |= {"txnAppId": application, "txnVersion": str(version)}
    bad = rows.where(f.col(corrupt).isNotNull()).select(*columns)
    bad.write.format("quoth").options(**options).mode("append").save()
    return rows.where(f.col(corrupt).isNull()).drop(corrupt)
