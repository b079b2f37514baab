"""`quoth bench embedded`: its rows, what is missing or fails, and that each level keeps its promise."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.machine.commands import COMMAND_S, Command
from kit.machine.tracing import calls_in, needs_strace, traced
from quothbench.embedded.command import COLUMNS, EmbeddedPlan, run
from quothbench.embedded.ways import COMPARISONS
from quothbench.embedded.work import NUMBER, Comparison, EmbeddedWay, StorageLevel, TimeUsed, Workload
from quothbench.report import Report
from quothcli.printing.output import Format, Printer
from quothlog import Reader

CALLS, BATCH = 20, 5
WAYS = [
    (number, place, compared, way)
    for number, compared in enumerate(COMPARISONS)
    for place, way in enumerate(compared.ways)
]
WRITES = [one for one in WAYS if one[2].level is not StorageLevel.READ]
BOTH = ("plyvel", "lmdb")


def stored_in(folder: Path, way: EmbeddedWay) -> list[bytes]:
    """The values in a folder, as the system of a way reads them."""
    match way.system:
        case "quoth":
            with Reader(folder) as reader:
                return [record.value for record in reader]
        case "leveldb":
            plyvel = pytest.importorskip("plyvel")
            database = plyvel.DB(str(folder))
            values = list(database.iterator(include_key=False))
            database.close()
            return values
        case "lmdb":
            lmdb = pytest.importorskip("lmdb")
            with lmdb.open(str(folder), readonly=True) as environment, environment.begin() as transaction:
                return list(transaction.cursor().iternext(keys=False))
    raw = (folder / "values").read_bytes()
    size = NUMBER.size + 20
    records = [raw[at : at + size] for at in range(0, len(raw), size)]
    assert [record[: NUMBER.size] for record in records] == [NUMBER.pack(at) for at in range(len(records))]
    return [record[NUMBER.size :] for record in records]


# -- the command --------------------------------------------------------------------------------------------


def rows_of(alone: Command, tmp_path: Path, *more: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The conditions and the rows of a short run, which leaves nothing behind."""
    typed = "bench embedded --records 300 --batch 50 --syncs 3 --rounds 2 --format json"
    ended = alone(*typed.split(), "--dir", str(tmp_path), *more)
    assert (ended.status, ended.err) == (0, "")
    assert not list(tmp_path.iterdir())
    conditions, *found = ended.objects
    assert {one["benchmark"] for one in ended.objects} == {"embedded"}
    return conditions, found


def check(row: dict[str, Any], compared: Comparison, way: EmbeddedWay) -> None:
    """Check the figures of one row."""
    times = row["nanoseconds_per_record"]
    assert 0 < times["low"] <= times["median"] <= times["high"]
    assert row["records_per_second"] == pytest.approx(1e9 / times["median"])
    assert row["processor_nanoseconds_per_record"]["low"] > 0
    assert row["bytes_per_record"] >= 20
    if way is compared.ways[0]:
        assert row["ratio_to_quoth"] is None
    else:
        assert 0 < row["ratio_to_quoth"]["low"] <= row["ratio_to_quoth"]["high"]
    assert row["problem"] is None


def test_rows_of_all_levels_are_complete(alone: Command, tmp_path: Path) -> None:
    conditions, found = rows_of(alone, tmp_path)
    assert {"machine", "memory", "written", "synced", "read", "queuefka"} <= set(conditions)
    assert len(found) == len(WAYS)
    for row, (_, _, compared, way) in zip(found, WAYS, strict=True):
        assert (row["way"], row["system"], row["level"]) == (way.name, way.system, compared.level)
        if missing := way.missing():
            assert row["problem"] == missing == conditions[way.library]
        else:
            check(row, compared, way)
    sizes = {(row["level"], row["records_per_call"], row["records"]) for row in found}
    assert sizes == {
        ("memory", 1, 300),
        ("written", 1, 30), ("written", 50, 300),
        ("synced", 1, 3), ("synced", 50, 150),
        ("read", 1, 300),
    }  # fmt: skip


def test_figures_of_queuefka_stand_beside_the_rows_of_the_same_work(alone: Command, tmp_path: Path) -> None:
    levels = ("--level", "memory", "--level", "written", "--level", "read")
    _, found = rows_of(alone, tmp_path, *levels)
    assert [(row["level"], row["system"], row["queuefka_row"], *row["queuefka"].values())
            for row in found if row["queuefka"]] == [
        ("memory", "quoth", "queuefka", 322, 79),
        ("memory", "lmdb", "bolt", 4_923, None),
        ("memory", "file", "bufio", 106, None),
        ("written", "quoth", "queuefka", None, 598),
        ("written", "leveldb", "leveldb", 13_752, None),
        ("written", "file", "os.Write", 5_125, None),
        ("read", "quoth", "queuefka", 316, 100),
    ]  # fmt: skip
    _, found = rows_of(alone, tmp_path, "--size", "21", "--level", "memory")
    assert [(row["queuefka_row"], row["queuefka"]) for row in found] == [(None, None)] * 3


def test_library_that_is_missing_is_named_in_its_rows_and_the_others_are_measured(
    alone: Command, tmp_path: Path
) -> None:
    lacking = alone.prepared(f"import sys; sys.modules.update(dict.fromkeys({BOTH}))")
    conditions, found = rows_of(lacking, tmp_path, "--level", "written")
    problems = {(row["system"], row["problem"]) for row in found}
    expected = {name: f"the Python library {name} is not installed: pip install {name}" for name in BOTH}
    assert problems == {
        ("quoth", None), ("file", None), ("leveldb", expected["plyvel"]), ("lmdb", expected["lmdb"]),
    }  # fmt: skip
    assert {name: conditions[name] for name in BOTH} == expected
    assert [row["nanoseconds_per_record"] is None for row in found] == [False, True, True, False] * 2


def failing(_folder: Path, _work: Workload) -> TimeUsed:
    raise OSError(28, "No space left on device")


def test_row_that_fails_has_a_problem_and_the_next_one_follows(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    first, *_, last = COMPARISONS[0].ways
    compared = Comparison(StorageLevel.MEMORY, (first, EmbeddedWay("it", "fails", failing), last))
    plan = EmbeddedPlan([StorageLevel.MEMORY], 50, 20, 10, 1, 2)
    report = Report(Printer(Format.JSON), "embedded", {}, COLUMNS)
    assert not run(report, tmp_path, plan, [compared])
    assert not list(tmp_path.iterdir())
    _, *found = map(json.loads, capsysbinary.readouterr().out.splitlines())
    assert [row["nanoseconds_per_record"] is None for row in found] == [False, True, False]
    assert found[1]["problem"] == "it: OSError: [Errno 28] No space left on device"
    assert found[2]["ratio_to_quoth"]["median"] > 0


# -- levels -------------------------------------------------------------------------------------------------

KILLED = f"""\
import os, signal, sys
from pathlib import Path
from quothbench.embedded.ways import COMPARISONS
from quothbench.embedded.work import StorageLevel, Workload

class Killing(list):
    "Kills this process when all of it was taken."
    def __iter__(self):
        yield from super().__iter__()
        os.kill(os.getpid(), signal.SIGKILL)

for number, compared in enumerate(COMPARISONS):
    for place, way in enumerate(compared.ways):
        if compared.level is StorageLevel.READ or way.missing():
            continue
        folder = Path(sys.argv[1], f"{{number}}-{{place}}")
        folder.mkdir()
        child = os.fork()
        if not child:
            work = Workload({CALLS} * ({BATCH} if compared.batched else 1), 20, {BATCH})
            work.values, work.batches = Killing(work.values), Killing(work.batches)
            way.measure(folder, work)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), way
"""


def kill_each(folder: Path, *prefix: str) -> None:
    """Let a process for each way write all records into a folder of its own, and kill it behind the last."""
    folder.mkdir()
    command = [*prefix, sys.executable, "-W", "error", "-c", KILLED, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def present() -> Iterator[tuple[str, Comparison, EmbeddedWay]]:
    """Yield the ways that write, with the names of their folders."""
    for number, place, compared, way in WRITES:
        if not way.missing():
            yield f"{number}-{place}", compared, way


def test_crash_takes_what_is_in_memory_and_nothing_that_is_written_or_synced(tmp_path: Path) -> None:
    kill_each(tmp_path / "killed")
    for name, compared, way in present():
        found = stored_in(tmp_path / "killed" / name, way)
        expected = Workload(CALLS * (BATCH if compared.batched else 1), 20, BATCH).values
        if compared.level is StorageLevel.MEMORY:
            assert found == [], way
        else:
            assert found == expected, way


@needs_strace
def test_each_call_is_synced_where_that_is_the_level(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    kill_each(folder, *traced(tmp_path / "trace"))
    syncs = Counter(
        Path(call.path).relative_to(folder).parts[0]
        for call in calls_in(tmp_path / "trace")
        if call.name in ("fsync", "fdatasync") and folder in Path(call.path).parents
    )
    for name, compared, way in present():
        if compared.level is StorageLevel.SYNCED:
            assert syncs[name] >= CALLS, way
        else:
            assert syncs[name] < CALLS, way


@pytest.mark.parametrize(
    ("compared", "way"), [one[2:] for one in WAYS], ids=[f"{one[2].level}-{one[3].name}" for one in WAYS]
)
def test_way_stores_or_reads_every_record_in_order(
    compared: Comparison, way: EmbeddedWay, tmp_path: Path
) -> None:
    if missing := way.missing():
        pytest.skip(missing)
    work = Workload(23, 20, BATCH)
    if way.fill is not None:
        way.fill(tmp_path, work)
    took = way.measure(tmp_path, work)
    assert min(took) > 0
    assert stored_in(tmp_path, way) == work.values
    if compared.level is StorageLevel.READ:
        with pytest.raises(Exception, match="460 bytes were read instead of 480"):
            way.measure(tmp_path, Workload(24, 20, BATCH))
