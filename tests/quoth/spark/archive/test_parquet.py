"""The Parquet files of an archive, as their writer makes them."""

from __future__ import annotations

import os
import random
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
from quoth.spark.archive.parquet import SCHEMA, read_file, write_files


def test_values_are_compressed_if_that_shrinks_a_sample_of_them_and_other_columns_always(
    root: Path, rng: random.Random
) -> None:
    others = ("offset", "timestamp", "key", "headers.list.element.key", "headers.list.element.value")
    expected = {(name, "ZSTD") for name in (*others, "ordinal")}
    for log, (values, compression) in enumerate((
        ([b"reading %d, as before" % number for number in range(2_000)], "ZSTD"),
        ([rng.randbytes(50) for _ in range(2_000)], "UNCOMPRESSED"),
    )):  # fmt: skip
        rows = [{"offset": at, "timestamp": at, "value": one, "ordinal": at} for at, one in enumerate(values)]
        parts = [pa.RecordBatch.from_pylist(some, schema=SCHEMA) for some in (rows[:1], rows[1:])]
        [file] = write_files(root, Lineage("orders", log, log), parts)
        group = pq.ParquetFile(root / file.name).metadata.row_group(0)
        columns = map(group.column, range(group.num_columns))
        found = {(one.path_in_schema, one.compression) for one in columns}
        assert (group.num_rows, found) == (2_000, expected | {("value", compression)})


def test_file_of_several_row_groups_has_all_records(root: Path) -> None:
    rows = [{"offset": at, "timestamp": at, "value": bytes(2**20), "ordinal": at} for at in range(70)]
    parts = [pa.RecordBatch.from_pylist(rows[at : at + 7], schema=SCHEMA) for at in range(0, 70, 7)]
    [file] = write_files(root, Lineage("orders", 1, 1), parts)
    assert pq.read_metadata(root / file.name).num_row_groups == 2
    found = [at for records in read_file(root, file) for at in records.column("offset").to_pylist()]
    assert found == list(range(70))


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
