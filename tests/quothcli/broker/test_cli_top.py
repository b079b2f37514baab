"""`quoth top` shows rates of a real broker, in a pipe and on a terminal, also while it is away."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import StartBroker
from kit.deadlines import DEADLINE_S, eventually
from kit.machine.commands import Command, Running
from kit.machine.screens import Screen
from quoth import Client, Cursor, connect
from quothcli.commands.broker.top import _columns, _lines
from quothcli.commands.broker.watch import BrokerView, Sort, Watch

PATIENT = ("--timeout", "20")
"""A broker on a busy machine may need longer for an answer than a person waits for one."""
LINE = re.compile(r"[\d.,-]+ +[\d.,-]+( k?M?B)? +[\d,]+ +[\d.,]+ k?M?B +[\ddhmsu.-]+ +- +[\dwrh ]+  t-one")


def next_object(running: Running, is_wanted: Callable[[Any], bool]) -> Any:
    """Read views as JSON up to the next one that is wanted."""
    found = json.loads(running.line())
    while not is_wanted(found):
        found = json.loads(running.line())
    return found


def test_rates_are_those_of_an_interval(client: Client, topic: str) -> None:
    client.publish(topic, [b"x" * 100] * 10)
    watch = Watch(client, "rate")
    first = watch.look(5)
    assert (first.seconds, first.requests_per_second) == (None, None)
    assert [row.records_per_second for row in first.rows if row.name == topic] == [None]
    client.publish(topic, [b"x" * 100] * 400)
    second = watch.look(5)
    assert second.seconds is not None
    row = second.rows[0]
    assert row.name == topic
    assert row.records == 410
    assert row.records_per_second == pytest.approx(400 / second.seconds)
    assert row.bytes_per_second is not None
    assert row.bytes_per_second * second.seconds > 400 * 100
    assert row.age is not None
    assert 0 <= row.age < DEADLINE_S
    assert (row.lag, row.lag_seconds) == (None, None)
    assert second.requests_per_second is not None
    assert second.requests_per_second > 0
    client.roll(topic)
    client.trim(topic, client.publish(topic, b"new").first)
    (row,) = [row for row in watch.look(100).rows if row.name == topic]
    assert (row.records, row.bytes_per_second) == (1, None), "an unknown number of bytes was removed"
    assert row.records_per_second is not None
    assert row.records_per_second > 0
    client.delete_topic(topic)
    client.publish(topic, b"of another topic")
    (row,) = [row for row in watch.look(100).rows if row.name == topic]
    assert (row.records, row.records_per_second) == (1, None)


def test_counters_of_another_process_are_not_compared(start_broker: StartBroker) -> None:
    """Also once it is older than the one before it became."""
    broker = start_broker()
    with connect(broker.url) as client:
        watch = Watch(client, "rate")
        before = watch.look(1).status.uptime
        broker.kill()
        broker.restart()
        eventually(lambda: client.status().uptime > before, "it is older")
        found = watch.look(1)
        assert (found.seconds, found.requests_per_second) == (None, None)


def test_lag_counts_records_behind_a_cursor(
    client: Client, topic: str, quoth: Command, tmp_path: Path
) -> None:
    """In records and in seconds, while its owner uses the cursor."""
    file = tmp_path / "billing.cursor"
    pointers = [client.publish(topic, b"%d" % number).last for number in range(10)]
    with Cursor(file) as cursor, client.tail_many(topic, after=0, cursor=cursor) as tail:
        for _ in range(4):
            cursor.advance(next(tail))
        cursor.save()
        (row,) = Watch(client, "lag", file).look(1).rows
        assert (row.name, row.lag) == (topic, 6)
        assert row.lag_seconds == pytest.approx((pointers[-1] - pointers[3]) / 1e6)
        line = ("top", *PATIENT, "--count", "1", "--interval", "0.1", "--rows", "1", "--cursor", str(file))
        result = quoth(*line)
        assert re.search(rf" 6  \S+ +{re.escape(topic)}$", result.lines[3]), result.lines
        for _ in range(6):
            cursor.advance(next(tail))
        cursor.save()
        (row,) = Watch(client, "lag", file).look(1).rows
        assert (row.lag, row.lag_seconds) == (0, 0.0)


ORDERS: dict[Sort, list[str]] = {
    "rate": ["b", "c", "a"],
    "bytes": ["c", "b", "a"],
    "name": ["a", "b", "c"],
    "lag": ["a", "b", "c"],
}


def test_topics_are_sorted(start_broker: StartBroker) -> None:
    broker = start_broker(worker_timeout=600)
    with connect(broker.url) as client:
        for name in "abc":
            client.publish(name, b"x")
        watches = {sort: Watch(client, sort) for sort in ORDERS}
        for watch in watches.values():
            watch.look(3)
        client.publish("b", [b"x"] * 50)
        client.publish("c", [b"x" * 10_000] * 2)
        for sort, watch in watches.items():
            assert [row.name for row in watch.look(3).rows] == ORDERS[sort], sort
            assert [row.name for row in watch.look(1).rows] in (["a"], ["b"], ["c"])


def test_hibernating_topics_cost_a_page_and_stay_so(start_broker: StartBroker) -> None:
    broker = start_broker(worker_timeout=0.01)
    with connect(broker.url) as client:
        for number in range(110):
            client.publish(f"t{number:03}", b"x")
        eventually(lambda: client.status().active == 0, "all of them hibernate")
        watch = Watch(client, "rate")
        before = client.status().counters["requests"]
        for _ in range(3):
            view = watch.look(10)
        status = client.status()
        assert status.active == 0
        assert status.counters["requests"] - before == 3 * (2 + 10) + 2, "two pages and ten topics a look"
        assert [row.name for row in view.rows] == [f"t{number:03}" for number in range(10)]


def test_active_topic_comes_up(start_broker: StartBroker) -> None:
    broker = start_broker(worker_timeout=1)
    with connect(broker.url) as client:
        for name in "abcd":
            client.publish(name, b"x")
        eventually(lambda: client.status().active == 0, "all of them hibernate")
        watch = Watch(client, "rate")
        assert [row.name for row in watch.look(2).rows] == ["a", "b"]

        def active() -> list[str]:
            client.publish("d", b"x")
            return [row.name for row in watch.look(2).rows]

        eventually(lambda: active() == ["d", "a"], "it is seen before it hibernates again")


def test_json_is_an_object_a_view(quoth: Command, topic: str) -> None:
    assert quoth("pub", topic, "hello").status == 0
    line = ("top", *PATIENT, "--count", "2", "--interval", "0.1", "--rows", "1000", "--format", "json")
    result = quoth(*line)
    assert (result.status, result.err) == (0, "")
    assert len(result.objects) == 2
    for found in result.objects:
        assert (found["url"], found["away"]) == (quoth.url, None)
        assert found["broker"]["requests_per_second"] > 0
        assert found["broker"]["seconds"] >= 0.1
        (row,) = [row for row in found["topics"] if row["name"] == topic]
        assert (row["records"], row["records_per_second"]) == (1, 0.0)


def test_pipe_gets_a_table_a_view(start_broker: StartBroker, alone: Command) -> None:
    broker = start_broker()
    assert alone("pub", "t-one", "hello", "--url", broker.url).status == 0
    result = alone("top", *PATIENT, "--count", "1", "--interval", "0.1", "--url", broker.url)
    heading, totals, columns, row, end = result.lines
    assert heading.startswith(broker.url)
    assert "1 topics, " in totals
    assert "syncs/s" in totals
    assert columns.split()[-1] == "TOPIC"
    assert LINE.search(row), row
    assert end == ""


def test_reader_that_ends_ends_it(quoth: Command) -> None:
    reading, writing = os.pipe()
    top = quoth.start("top", "--interval", "600", stdout=writing)
    os.close(writing)
    os.close(reading)
    assert top.end().status == 0


def test_broker_that_goes_away_is_awaited(start_broker: StartBroker, alone: Command) -> None:
    broker = start_broker()
    top = alone.start("top", "--interval", "0.1", "--timeout", "3", "--format", "json", "--url", broker.url)
    pid = next_object(top, lambda view: view["away"] is None)["broker"]["pid"]
    broker.kill()
    away = next_object(top, lambda view: view["away"] is not None)
    assert away["away"] in ("timed_out", "disconnected")
    assert broker.url in away["text"]
    broker.restart()
    back = next_object(top, lambda view: view["away"] is None and view["broker"]["pid"] != pid)
    assert back["broker"]["pid"] == broker.pid
    assert back["broker"]["requests_per_second"] is None, "its counters began anew"
    assert top.end(signal.SIGINT).status == 0


def test_terminal_shows_one_view_in_the_place_of_the_other(start_broker: StartBroker, alone: Command) -> None:
    broker = start_broker()
    assert alone("pub", "t-one", "hello", "--url", broker.url).status == 0
    for columns, number, status in ((150, signal.SIGTERM, 143), (80, signal.SIGINT, 0)):
        screen = Screen(lines=12, columns=columns)
        top = screen.show(alone, "top", *PATIENT, "--interval", "0.1", "--url", broker.url)
        screen.wait_for(lambda seen: seen.count("t-one") >= 3)
        assert re.search(r"\x1b\[[1-4]A", screen.seen), "the cursor goes up again"
        os.kill(top.process.pid, number)
        screen.wait_for(lambda seen: "\x1b[?25h" in seen)  # the cursor that was hidden
        end = subprocess.Popen.wait(top.process, DEADLINE_S)
        screen.close()
        assert end == status
        assert columns == 80 or LINE.search(screen.seen)
        first, second = screen.lines[:2]
        assert re.search(rf"{re.escape(broker.url)} .* process {broker.pid}, up .* [0-9:]{{8}}Z", first)
        assert "1 topics" in second
        assert not any("\u2026" in line or "..." in line for line in screen.lines[:2]), "a line was cut"


WIDTHS = {
    20: "",
    40: "RECORDS/S",
    60: "RECORDS/S AGE LAG",
    80: "RECORDS/S BYTES/S AGE LAG",
    120: "RECORDS/S BYTES/S RECORDS BYTES AGE LAG SEGMENTS",
}


def test_narrow_terminal_leaves_columns_out() -> None:
    for width, headings in WIDTHS.items():
        assert " ".join(column.heading for column in _columns(width)) == headings


def test_header_with_long_values_fits_a_screen(client: Client) -> None:
    """A long URL is cut before what stands behind it; a pipe gets all of it."""
    result = {"topics": 100_000, "active": 10_000, "waits": 100_000, "pid": 4_194_304, "uptime": 1e7}
    status = type(client.status())(**{**asdict(client.status()), **result})
    view = BrokerView(status, 1.0, 999_999.0, 99_999.0, [])
    url = f"tcp://broker.{'long-' * 20}name.example:5555"
    first, second, _ = _lines(url, view, width=80)
    assert len(first) == 80
    assert re.fullmatch(r"tcp://broker\.long-\S*\.\.\.  .*, process 4194304, up 115d17h  [0-9:]{8}Z", first)
    assert second == "100,000 topics, 10,000 active, 100,000 waiting, 999,999 req/s, 99,999 syncs/s"
    assert _lines("tcp://127.0.0.1:5555", view, width=80)[0].startswith("tcp://127.0.0.1:5555  ")
    assert _lines(url, view)[0].startswith(f"{url}  ")
