"""Daemon of Spark's Python workers: imports what they need once, before it forks them.

Spark runs it with the module of its workers as argument, see `spark.python.daemon.module`. A worker is
replaced whenever a task fails, and each new one would import pyarrow, pandas and Quoth again: a second each.
"""

from __future__ import annotations

import sys
from importlib import import_module

from pyspark.daemon import manager

SOURCE = ("quoth.spark.source.source",)
IMPORTS = {
    "pyspark.sql.worker.lookup_data_sources": (),
    "pyspark.worker": (*SOURCE, "pandas", "quoth.spark.archive.archiver", "quoth.spark.replay.tasks"),
}
"""What each kind of worker imports; the source, unless it is named here."""

if __name__ == "__main__":
    for name in IMPORTS.get(sys.argv[1], SOURCE):
        import_module(name)
    manager()
