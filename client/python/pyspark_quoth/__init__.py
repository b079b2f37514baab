"""Registers `format("quoth")`: Spark imports every package named `pyspark_*` and takes its `DefaultSource`.

A package that fails breaks the lookup of all formats, so this one imports nothing of Quoth before it is used.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """A `quoth.spark.QuothDataSource`, which is imported when it is constructed."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "quoth"

    def __new__(cls, options: dict[str, str]) -> DataSource:  # type: ignore[misc]  # Spark takes any DataSource
        """Construct the source."""
        from quoth.spark.source.source import QuothDataSource

        return QuothDataSource(options)
