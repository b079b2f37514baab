"""Where Spark finds `format("quoth")`: of every package named `pyspark_*` it takes the `DefaultSource`.

One that fails takes all others with it, so nothing of Quoth is imported before it is used.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """Becomes a `quoth.spark.QuothDataSource` when it is made."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return "quoth"

    def __new__(cls, options: dict[str, str]) -> DataSource:  # type: ignore[misc]  # Spark takes any DataSource
        """The real one."""
        from quoth.spark.source.source import QuothDataSource

        return QuothDataSource(options)
