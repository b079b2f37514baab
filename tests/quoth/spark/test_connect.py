"""Spark Connect: a client without a SparkContext reads and writes topics, and works on their ranges."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.machine.ports import free_port
from kit.spark.sparks import JOB_S

JOB = """\
import json, sys
from pathlib import Path
import pyarrow as pa
from pyspark.sql import SparkSession
from quoth import QuothError
from quoth.spark import (
    foreach_partition, from_json, map_in_arrow, read_topic, register_views, time_options, topic_ranges,
    topic_ranges_frame,
)

server, url, topic, folder = sys.argv[1:]
spark = SparkSession.builder.remote(server).getOrCreate()

def refused():
    try:
        topic_ranges(spark, topic, url=url)
    except QuothError as problem:
        return problem.hint

def lengths(one, batches):
    for batch in batches:
        yield pa.RecordBatch.from_pylist([{"rows": batch.num_rows}])

def keep(one, batches):
    Path(folder, f"{one.after}").write_text(str(sum(batch.num_rows for batch in batches)))

rows = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS value")
rows.write.format("quoth").options(url=url, topic=topic).mode("append").save()
ranges = topic_ranges_frame(spark, topic, url=url)
foreach_partition(ranges, keep)
times = time_options(spark, "timestamp > current_timestamp() - INTERVAL 1 HOUR")
views = register_views(spark, url=url)
copy = {"url": url, "topic": f"{topic}.copy", "checkpointLocation": f"{folder}.checkpoint"}
stream = spark.readStream.format("quoth").options(url=url, subscribe=topic, startingOffsets="earliest").load()
query = stream.select("value").writeStream.format("quoth").options(**copy).trigger(availableNow=True).start()
query.awaitTermination()
print(json.dumps({
    "copied": read_topic(spark, f"{topic}.copy", url=url).count(),
    "session": type(spark).__module__,
    "read": read_topic(spark, topic, url=url, **times).count(),
    "ranges": [row.rows for row in map_in_arrow(ranges, lengths, "rows LONG").collect()],
    "kept": [int(path.read_text()) for path in Path(folder).iterdir()],
    "views": views,
    "in_view": spark.sql(f"SELECT * FROM `{topic}`").count(),
    "refused": refused(),
    "parsed": from_json(read_topic(spark, topic, url=url), "id LONG").where("_corrupt IS NOT NULL").count(),
}))
spark.stop()
"""


@pytest.fixture
def server(spark: Any) -> str:
    """The URL of a server of Spark Connect in the session of all tests, with which it ends."""
    port, context = free_port(), spark._jsc.sc()
    context.conf().set("spark.connect.grpc.binding.port", str(port))
    spark._jvm.org.apache.spark.sql.connect.service.SparkConnectService.start(context)
    return f"sc://127.0.0.1:{port}"


def test_client_of_spark_connect_reads_writes_and_works_on_ranges(
    server: str, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    (tmp_path / "job.py").write_text(JOB)
    done = subprocess.run(
        [sys.executable, "job.py", server, broker.url, topic, str(folder)], cwd=tmp_path,
        capture_output=True, text=True, timeout=JOB_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["session"] == "pyspark.sql.connect.session"
    assert (said["read"], sum(said["ranges"]), sum(said["kept"]), said["parsed"]) == (100, 100, 100, 100)
    assert len(said["kept"]) == 2, "as many ranges as tasks run at once"
    assert topic in said["views"]
    assert (said["in_view"], said["copied"]) == (100, 100)
    assert said["refused"].startswith("topic_ranges_frame ")
