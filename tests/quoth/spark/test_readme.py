"""README.md of the package is true: its code runs as it stands there, its tables agree with the code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quoth.spark
from kit.broker.brokers import BrokerProcess
from kit.client.records import values
from kit.deadlines import eventually
from quoth import Client
from quoth.spark import connections, options
from quoth.spark.sink import sink
from quoth.spark.source.source import COLUMNS
from quothcli import application

FOLDER = Path(quoth.spark.__path__[0])
README = (FOLDER / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL = re.findall(r"^quoth .*$", "\n".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL)), re.MULTILINE)

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(spark: Any, broker: BrokerProcess, topic: str, tmp_path: Path) -> Run:
    """Run the block that holds a text, with the test's broker, topic and folder. own: more of its names."""

    def run_it(held: str, **own: Any) -> dict[str, Any]:
        (block,) = [block for block in PYTHON if held in block]
        for name, here in {
            "tcp://127.0.0.1:5555": broker.url,
            "/data": str(tmp_path),
            '"orders"': f'"{topic}"',
            '"loud"': f'"{topic}-loud"',
            '"orders-dead"': f'"{topic}-dead"',
            '"counts"': f'"{topic}-counts"',
            "'orders'": f"'{topic}'",
            "'sums'": f"'{topic}-sums'",
        }.items():
            block = block.replace(name, here)
        names: dict[str, Any] = {"spark": spark, "__name__": "__main__", **own}
        exec(compile(block, "<README.md>", "exec"), names)
        return names

    return run_it


def test_headers_that_cannot_be_decoded_are_left_out_as_the_page_says(
    spark: Any, client: Client, topic: str
) -> None:
    from pyspark.sql import functions as f

    kind = "value STRING, headers ARRAY<STRUCT<key STRING, value BINARY>>"
    bad: list[Any] = [("a", [("n", b"v")]), ("b", [(None, b"\xc1")]), ("c", []), ("d", None)]
    rows = spark.createDataFrame(bad, kind).coalesce(1)

    def write(rows: Any) -> None:
        rows.write.format("quoth").options(url=client.url, topic=topic).mode("append").save()

    with pytest.raises(Exception, match="its key or its value is null"):
        write(rows)
    [remedy] = re.findall(r"^`(rows\.withColumn\(\"headers\".*)`\.$", README, re.MULTILINE)
    write(eval(remedy, {"rows": rows, "f": f}))
    assert [(one.value, one.headers) for one in client.read(topic)] == [
        (b"a", {"n": b"v"}),
        (b"b", {}),
        (b"c", {}),
        (b"d", {}),
    ]


def test_a_table_and_one_of_a_time_are_read(client: Client, topic: str, run: Run) -> None:
    client.publish(topic, [b"one", b"two"])
    assert run('.option("since", "-15m")')["orders"].count() == 2
    assert run("time_options")["recent"].count() == 2


def test_topics_are_views_in_sql(spark: Any, client: Client, topic: str, run: Run) -> None:
    client.publish(topic, [b"one", b"two"])
    try:
        run("TEMPORARY VIEW")
        assert values(client, f"{topic}-sums") == [b"2"]
    finally:
        for name in ("orders", "sums"):
            spark.catalog.dropTempView(name)


def test_a_stream_is_written_to_parquet_and_its_lag_is_reported(
    spark: Any, client: Client, topic: str, tmp_path: Path, run: Run
) -> None:
    before = set(spark._jsparkSession.streams().listListeners())
    reports: list[tuple[Any, ...]] = []
    run("LagListener", print=lambda *words: reports.append(words))
    try:
        for number, value in enumerate((b"one", b"two")):
            client.publish(topic, value)
            run('.format("parquet")')
            eventually(lambda: (topic, 0, 0.0, 0) in reports[number:], "the lag was printed")  # noqa: B023
    finally:
        for listener in set(spark._jsparkSession.streams().listListeners()) - before:
            spark._jsparkSession.streams().removeListener(listener)
    found = spark.read.parquet(str(tmp_path / "orders")).collect()
    assert sorted(row.value for row in found) == ["one", "two"]


def test_a_stream_shows_its_progress_as_a_named_cursor(client: Client, topic: str, run: Run) -> None:
    client.publish(topic, [b"one", b"two"])
    run('.option("group", "report")')
    assert client.cursor(topic, "report", create=False).lag().records == 0


def test_a_topic_is_written_once(spark: Any, client: Client, topic: str, run: Run) -> None:
    client.publish(topic, [b"a", b"b", b"b"])
    write = run("foreachBatch")["write"]
    write(spark.createDataFrame([("a",), ("c",)], "value STRING"), 0)  # as a micro-batch that is repeated
    assert sorted(values(client, f"{topic}-loud")) == [b"A", b"B", b"B"]
    counts = {one.key: one.value for one in client.read(f"{topic}-counts")}
    assert counts == {b"a": b"1", b"b": b"2"}


def test_records_come_to_the_workers_as_arrow(
    spark: Any, client: Client, topic: str, tmp_path: Path, run: Run
) -> None:
    client.publish(topic, [b"x" * number for number in range(10)])
    names = run("foreach_partition")
    found = spark.read.parquet(str(tmp_path / f"{topic}-*.parquet")).collect()
    assert sorted(len(row.value) for row in found) == list(range(10))
    assert names["map_in_arrow"](names["ranges"], names["lengths"], "pointer LONG, bytes INT").count() == 10


def test_json_is_parsed_and_the_rest_is_a_dead_letter(client: Client, topic: str, run: Run) -> None:
    client.publish(topic, [b'{"id": 1, "item": "cup"}', b"{"])
    good = run("from_json")["good"].select("json.id").collect()
    assert [row.id for row in good] == [1]
    assert values(client, f"{topic}-dead") == [b"{"]


def test_commands_of_the_page_and_their_options_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert (len(PYTHON), len(SHELL)) == (9, 4), "every block is run by a test"
    for line in SHELL:
        words = shlex.split(line)[1:]
        assert application.run([*words[:2], "--help"]) == 0
        printed = capsys.readouterr().out
        assert [word for word in words if word.startswith("--") and word not in printed] == [], line


def test_tables_of_the_page_agree_with_the_code() -> None:
    columns, _, rest = README[README.index("## Columns") :].partition("## Options")
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", columns, re.MULTILINE)))
    assert set(named) == set(COLUMNS)
    of_source, of_sink = rest.partition("## What is exactly once")[0].split("Of a sink")
    for table, names in ((of_source, options.NAMES), (of_sink, sink.NAMES)):
        rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
        named = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
        assert {*named, "quoth.bootstrap.servers"} == set(names)
    defaults = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", README, re.MULTILINE))
    assert defaults["maxOffsetsPerTrigger"] == f"{options.RECORDS_MAX:,}"
    assert defaults["maxBytesPerTrigger"] == f"{options.BYTES_MAX / 2**30:g} GiB"
    assert defaults["timeout"] == f"{connections.TIMEOUT_S:g}s"
