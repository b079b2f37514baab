"""`quoth bench`: each command once, as small as possible, with its rows; mistakes in what is typed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.machine.commands import Command, Ended
from kit.machine.processes import needs_proc
from quoth import AuthError
from quothbench import options
from quothbench.figures import Goal
from quothbench.instruments import api, pages, ratio
from quothbench.instruments.table import Row, rows
from quothbench.load.clients import Clients
from quothbench.load.driver import VALUE
from quothbench.load.keys import BenchKeys, make_keys
from quothbench.load.servers import own_broker
from quothbench.report import Report
from quothcli.application import run
from quothcli.printing.output import Format, Printer

QUANTILES = ("p50", "p90", "p99", "p99.9")
RUNS = 3
"""Runs in which the ratio of a figure has to be plausible once. A wrong one is so in none."""

Compared = tuple[dict[str, Any], float, float]
"""A row, and the two figures that its ratio compares."""
RatioRows = Callable[..., list[Any]]
"""Measures what a function says with a broker of its own, with keys or without; returns the rows."""


def measured(ended: Ended, benchmark: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The conditions and the rows of a benchmark in JSON."""
    assert (ended.status, ended.err) == (0, "")
    conditions, *found = ended.objects
    assert {one["benchmark"] for one in ended.objects} == {benchmark}
    assert {"machine", "versions"} <= set(conditions)
    return conditions, found


def check_rates(row: dict[str, Any], size: int) -> None:
    """Check that the figures of a row fit each other. size: bytes of a message."""
    assert row["messages_per_second"] > 0
    assert row["megabytes_per_second"] == pytest.approx(row["messages_per_second"] * size / 1e6)
    quantiles = [row[f"{name}_seconds"] for name in QUANTILES]
    assert 0 < row["calls_per_second"] <= row["messages_per_second"]
    assert quantiles == sorted(quantiles)
    assert 0 < quantiles[0] < 20


def is_plausible(row: dict[str, Any], one: float, other: float) -> bool:
    """Check what the ratio of a single pair of measurements compares. False if it is no possible one."""
    assert row["ratio"]["median"] == pytest.approx(other / one)
    return bool(0.01 < row["ratio"]["low"] <= row["ratio"]["high"] < 100)


def check_ratios(compare: Callable[[], Iterable[Compared]]) -> None:
    """Check the ratios of rows, until each was plausible once: a pause of the machine spoils a short one."""
    implausible: list[set[str]] = []
    while not implausible or set.intersection(*implausible):
        assert len(implausible) < RUNS, implausible
        implausible.append({row["figure"] for row, *pair in compare() if not is_plausible(row, *pair)})


def test_api_measures_every_method_in_turn_and_deletes_its_topics(
    alone: Command, broker: BrokerProcess
) -> None:
    typed = "bench api --pairs 1 --seconds 10ms --records 10 --size 20000 --format json --url"
    conditions, found = measured(alone(*typed.split(), broker.url), "api")
    assert (conditions["broker"], conditions["directory"]) == (broker.url, str(broker.directory))
    assert (conditions["pairs"], conditions["seconds"], conditions["batch"]) == (1, 0.01, 10)
    assert [(row["method"], row["durability"]) for row in found] == [
        *((name, level) for name in api.WRITES for level in ("written", "synced")),
        *((name, None) for name in api.READS),
    ]
    for row in found:
        blocking, awaited = (row[name]["median"] for name in ("quoth", "quoth_aio"))
        assert min(blocking, awaited) > 0
        assert row["ratio_to_quoth"]["median"] == pytest.approx(awaited / blocking)
    with quoth.connect(broker.url) as client:
        assert client.topics() == []


@pytest.fixture
def ratio_rows(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> RatioRows:
    """Measure with a broker of its own; returns the rows."""

    def measure(work: Callable[[ratio.RatioBench], None], keys: BenchKeys | None = None) -> list[Any]:
        report = Report(Printer(Format.JSON), "ratio", {}, ratio.COLUMNS)
        settings = {} if keys is None else keys.settings
        with (
            options.folder(tmp_path) as made,
            own_broker(made / "data", **settings) as broker,
            Clients(1) as clients,
        ):
            work(ratio.RatioBench(broker, clients, made, report, 1, stored=20, keys=keys))
        _, *found = Ended(0, capsysbinary.readouterr().out, "").objects
        return found

    return measure


def of_both(rows: Iterable[dict[str, Any]]) -> list[Compared]:
    """Return rows with the figures of both servers."""
    return [(row, row["bare"]["median"], row["quoth"]["median"]) for row in rows]


def test_ratio_measures_calls_and_round_trips_beside_a_bare_loop(ratio_rows: RatioRows) -> None:
    def work(bench: ratio.RatioBench) -> None:
        bench.writes(ratio.Writes(ratio.WRITES[0].name, 100, VALUE, 1_000, Goal(0.7)))
        for sealed in (False, True):
            bench.reads(ratio.ReadRow(f"read, {sealed}", 10, 10**6, 40, sealed, Goal()))
        bench.run(ratio.figures_that_begin(["publish"]))

    def compared() -> list[Compared]:
        *found, trip = ratio_rows(work)
        costs = [row for row in found if row["unit"] == "us"]  # the system counts processor time, or not
        rates = [row for row in found if row not in costs]
        assert [row["figure"] for row in rates] == [ratio.WRITES[0].name, "read, False", "read, True"]
        assert (trip["figure"], trip["unit"], trip["required"], trip["aim"]) == (ratio.TRIP, "us", 1.6, 1.35)
        return of_both([*found, trip])

    check_ratios(compared)


def test_ratio_measures_both_servers_with_keys(ratio_rows: RatioRows, tmp_path: Path) -> None:
    def work(bench: ratio.RatioBench) -> None:
        with pytest.raises(AuthError):
            quoth.connect(bench.broker.url)
        bench.writes(ratio.Writes("write", 100, VALUE, 100, Goal(0.7)))
        bench.reads(ratio.ReadRow("read", 10, 10**6, 40, True, Goal()))
        bench.run(ratio.figures_that_begin(["publish"]))

    keys = make_keys(tmp_path)

    def compared() -> list[Compared]:
        found = ratio_rows(work, keys)
        assert [row["figure"] for row in found] == ["write", "read", ratio.TRIP]
        return of_both(found)

    check_ratios(compared)


def test_table_measures_every_combination_beside_poe(alone: Command, broker: BrokerProcess) -> None:
    typed = "bench table --topics 1 --clients 1 --seconds 200ms --format json --url"
    conditions, found = measured(alone(*typed.split(), broker.url), "table")
    assert (conditions["batch"], conditions["value_bytes"], conditions["seconds"]) == (100, 100, 0.2)
    assert [Row(*(row[name] for name in Row._fields)) for row in found] == rows(topics=(1,), clients=(1,))
    for row in found:
        check_rates(row, 1 if row["work"] == "write_mini" else 100)
        assert row["clients_microseconds_per_call"] > 0
        if row["work"] in ("read", "read_wrap"):
            assert row["messages_per_second"] < row["calls_per_second"] * 100 or not row["caught_up"]
        else:
            assert row["messages_per_second"] == pytest.approx(row["calls_per_second"] * 100)
            assert row["caught_up"] == 0
    costs = [row["broker_microseconds_per_call"] for row in found]
    counted = [cost for cost in costs if cost is not None]  # the system counts in steps of 10 ms
    assert counted
    assert all(10 < cost < 100_000 for cost in counted)
    of_poe = {(row["work"], row["durability"]): row["poe"] for row in found if row["poe"]}
    assert of_poe == {
        ("write", "written"): {"published": None, "measured": 9_300},
        ("read", None): {"published": None, "measured": 527_000},
        ("read_wrap", None): {"published": None, "measured": 527_000},
    }, "Poe did not sync, and alternating was not measured with one client"


def test_latency_measures_calls_and_tails(alone: Command, tmp_path: Path) -> None:
    typed = "bench latency --calls 20 --tail-rate 100 --seconds 100ms --format json --dir"
    _, found = measured(alone(*typed.split(), str(tmp_path)), "latency")
    publish = "publish of 1 x 100 B"
    alone_rows, tailed = found[:4], found[4:]
    assert [(row["figure"], row["durability"]) for row in alone_rows] == [
        (publish, "written"), (publish, "synced"), ("fetch of 1 x 100 B", None), ("ping", None),
    ]  # fmt: skip
    assert {row["calls"] for row in alone_rows} == {20}
    for record, published, pinged in zip(tailed[::3], tailed[1::3], tailed[2::3], strict=True):
        assert record["calls"] == published["calls"] == pinged["calls"] == record["rate"] / 10
        assert record["ratio"] > 0
        assert record["required"] == (3 if record["rate"] == 20 else None)
    ways = [row["figure"].removeprefix("to tail, ") for row in tailed[::3]]
    assert ways == ["long poll", "client.tail"] * 2
    for row in found:
        quantiles = [row[f"{name}_seconds"] for name in (*QUANTILES, "max")]
        assert 0 < quantiles[0] < 10
        assert quantiles == sorted(quantiles)
    assert not list(tmp_path.iterdir())


@needs_proc
def test_memory_measures_bytes_and_growth(alone: Command, tmp_path: Path) -> None:
    typed = "bench memory --batches 100 --topics 30 --waits 50 --pairs 1 --sizes 1 2 --records 1000 10000"
    _, found = measured(alone(*typed.split(), "--format", "json", "--dir", str(tmp_path)), "memory")
    of = {row["figure"]: row for row in found}
    assert [(row["how_many"], row["unit"]) for row in found] == [
        *[(10_000, "B")] * 2, (30, "B"), (50, "B"), *[(2 * 2**20, "ms")] * 2, (10_000, "us"),
    ]  # fmt: skip
    sparse, all_of_it = (of[f"a record, {part} of a log"]["each"] for part in ("sparse index", "all"))
    assert 24 / 2**16 * 100 < sparse < 10
    assert sparse - 0.1 < all_of_it < 10  # other values are a few hundred bytes smaller than before
    assert 100 < of["a hibernating topic"]["each"] < 200_000
    assert 100 < of["a long poll"]["each"] < 100_000
    for row in found[4:]:
        assert is_plausible(row, row["few"], row["each"])
    assert found[4]["each"] < found[5]["each"], "ready before an answer"
    assert not list(tmp_path.iterdir())


MISTAKES = {
    "bench api --seconds 1h": (2, "--seconds is at least 10 milliseconds and at most 10 minutes"),
    "bench api --durability none": (2, "--durability"),
    "bench group --figure lag": (2, "--figure"),
    "bench group --acks 10": (2, "--acks"),
    "bench latency --tail-rate 0": (2, "--tail-rate"),
    "bench memory --sizes 64 1": (2, "--sizes"),
    "bench memory --sizes 0 1": (2, "--sizes"),
    "bench memory --records 1000 10": (2, "--records"),
    "bench peers --peer kafka": (2, "kafka"),
    "bench ratio --figure write --figure Read": (2, f"'Read', only {'; '.join(ratio.FIGURES)}"),
    "bench spark --figure sauce": (2, "--figure"),
    "bench spark --size -1": (2, "--size"),
    "bench table --work wirte": (2, "--work"),
    "bench table --url tcp://127.0.0.1:1 --dir .": (2, "--dir"),
    "bench table --dir no/such/directory": (3, "not_found"),
    "--timeout 0.1 bench table --url tcp://127.0.0.1:1": (4, "disconnected"),
}


def test_mistake_is_an_error_with_a_hint(capfd: pytest.CaptureFixture[str]) -> None:
    for typed, (status, text) in MISTAKES.items():
        ended = run(typed.split())
        out, err = capfd.readouterr()
        assert (ended, out) == (status, ""), typed
        assert text in err
        assert "\nhint: " in err


def test_running_broker_with_keys_is_refused_whatever_key_is_given(
    alone: Command, start_broker: StartBroker, tmp_path: Path
) -> None:
    keys = make_keys(tmp_path)
    url = start_broker(**keys.settings).url
    for environment in ({}, {"QUOTH_KEY_FILE": keys.client}):
        happened, advice = alone("bench", "table", "--url", url, environment=environment).refused(1)
        assert (
            f"auth_failed: the broker at {url} wants a key, and the clients of a benchmark have none"
            in happened
        )
        assert "measure without --url" in advice


def test_http_is_compared_with_the_client_for_asyncio(alone: Command, broker: BrokerProcess) -> None:
    typed = "bench http --pairs 1 --calls 16 --records 4 --format json --url"

    def compared() -> list[Compared]:
        conditions, found = measured(alone(*typed.split(), broker.url), "http")
        assert (conditions["calls"], conditions["level"]) == (16, "written")
        figures = [row["figure"] for row in found]
        assert figures[:3] == [
            "publish of 1 x 100 B, 1 at once",
            "publish of 1 x 100 B, 8 at once",
            "publish of 4 records",
        ]
        assert figures[3:] == ["read, x-ndjson", "read, plain", "read, vnd.quoth.batches"]
        return [
            (row | {"ratio": row["ratio_to_quoth_aio"]}, row["quoth_aio"]["median"], row["http"]["median"])
            for row in found
        ]

    check_ratios(compared)


def test_pages_are_viewed_beside_a_steady_load(alone: Command, tmp_path: Path) -> None:
    typed = "bench pages --topics 20 --rate 500 --seconds 1500ms --pairs 1 --format json --dir"
    ended = alone(*typed.split(), str(tmp_path))
    conditions, *found = ended.objects
    assert (ended.status, conditions["topics"], conditions["records_per_second"]) == (0, 20, 500)
    calm, beside, *viewed, together = found
    assert beside["ratio"]["median"] == pytest.approx(beside["p99_seconds"] / calm["p99_seconds"])
    assert [row["figure"] for row in viewed] == [f"page {path}" for path in pages.PAGES[: len(viewed)]]
    assert together["calls"] == sum(row["calls"] for row in viewed) > 0
    assert all(0 < row["p50_seconds"] < 20 for row in found)
    assert list(tmp_path.iterdir()) == [], "it removes its topics"
