"""The package that Spark imports to find the format."""

from __future__ import annotations

import subprocess
import sys

import pyspark_quoth
from quoth.spark import QuothDataSource

LOOKED_UP = """\
import sys
from pyspark.sql.datasource import DataSource
before = set(sys.modules)
import pyspark_quoth
assert set(sys.modules) - before == {"pyspark_quoth"}, set(sys.modules) - before
assert issubclass(pyspark_quoth.DefaultSource, DataSource) and pyspark_quoth.DefaultSource.name() == "quoth"
"""


def test_looking_it_up_imports_nothing_that_could_fail() -> None:
    done = subprocess.run([sys.executable, "-c", LOOKED_UP], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_default_source_creates_the_real_source() -> None:
    made = pyspark_quoth.DefaultSource({"url": "tcp://127.0.0.1:1"})
    assert type(made) is QuothDataSource
    assert made.options == {"url": "tcp://127.0.0.1:1"}
    assert QuothDataSource.name() == pyspark_quoth.DefaultSource.name()
