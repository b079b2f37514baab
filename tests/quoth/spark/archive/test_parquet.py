"""The Parquet files of an archive, as their writer makes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kit.broker.brokers import BrokerProcess
from kit.spark.archives import of_archive, of_topic
from kit.spark.sparks import TESTS
from quoth import Client
from quoth.spark.archive.manifest import Lineage
from quoth.spark.archive.parquet import COLUMNS, SCHEMA, write_files


def test_first_record_of_a_file_does_not_say_alone_how_the_others_are_stored(root: Path) -> None:
    texts = [f"reading {number}, as before".encode() for number in range(2_000)]
    rows = [{"offset": at, "timestamp": at, "value": text, "ordinal": at} for at, text in enumerate(texts)]
    parts = [pa.RecordBatch.from_pylist(some, schema=SCHEMA) for some in (rows[:1], rows[1:])]
    [file] = write_files(root, Lineage("orders", 1, 1), parts)
    group = pq.ParquetFile(root / file.name).metadata.row_group(0)
    assert group.num_rows == 2_000
    assert group.column(COLUMNS.index("value")).compression == "ZSTD"


def test_archiving_does_not_import_pandas(
    client: Client, broker: BrokerProcess, root: Path, topic: str
) -> None:
    """An import takes 0.2 s of each new worker, and pyarrow imports pandas to convert Python objects."""
    client.publish(topic, [b"value"] * 100, key=[b"key", None] * 50)
    code = f"""\
import sys
from pathlib import Path
import quoth
from kit.spark.archives import run
with quoth.connect({broker.url!r}) as client:
    run("archive", client, Path({str(root)!r}), {topic!r})
print("pandas" in sys.modules)
"""
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "False\n", done.stderr
    assert of_archive(root, topic) == of_topic(client, topic)
