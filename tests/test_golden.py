"""The golden directories of every version: each kind of reader reads all of them, and logs in them go on.

Each version that ever wrote files has a directory in tests/golden. The last parameter is the directory that
this code writes now, so that the recorder is tested, too.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.clocks import DAY, START, ManualClock
from kit.disk.golden import FOREVER, Recorder, text, write
from kit.disk.logs import encoded, outcome_of, salvaged, verify_log
from kit.machine.commands import Command
from kit.machine.processes import shared
from kit.spark.archives import rows_of
from quoth import Client, Gap, Message
from quoth.spark.archive import archived_files
from quoth.spark.archive.fingerprint import fingerprint, total
from quoth.spark.archive.store import read_manifest
from quothlog import Appended, Log, Reader
from quothlog.datadir import topic_file
from quothlog.reading import forwarding_progress
from quothwire.protocol.transaction import StagedPart, producer_of
from quothwire.record import Record

RECORDED = Path(__file__).parent / "golden"
BYTES_MAX = 200 * 2**10
NOW = "written now"

Expected = dict[str, Any]

every_version = pytest.mark.parametrize(
    "golden", [*sorted(path.name for path in RECORDED.glob("v*")), NOW], indirect=True
)


class Golden:
    """A copy of a golden directory, which a test may change."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.expected: Expected = json.loads((root / "said.json").read_text())

    @property
    def topics(self) -> list[Expected]:
        """The expected topics."""
        found: list[Expected] = self.expected["topics"]
        return found

    def topic(self, name: str) -> Expected:
        """Return the expected topic of a name."""
        return next(one for one in self.topics if one["name"] == name)

    def folder(self, topic: Expected) -> Path:
        """Return the directory of a topic's log."""
        return self.root / "data" / "topics" / str(topic["folder"])

    def content(self) -> dict[str, tuple[bytes, int]]:
        """Return the bytes and the modification time of all files."""
        paths = [path for path in self.root.rglob("*") if path.is_file()]
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


@pytest.fixture(scope="session")
def written_now(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory that this code writes. Other workers wait for the first one."""
    with shared(tmp_path_factory, "written-now") as root:
        if not (root / "said.json").exists():
            write(root)
    return root


@pytest.fixture
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    """Return a copy of one of the golden directories."""
    source = request.getfixturevalue("written_now") if request.param == NOW else RECORDED / request.param
    return Golden(Path(shutil.copytree(source, tmp_path / "golden")))


def content_of(records: Iterable[Record | Message]) -> list[Expected]:
    """Return records in the form of the expected ones, without their ordinals."""
    return [
        {
            "pointer": one.pointer,
            "value": text(one.value),
            "key": None if one.key is None else text(one.key),
            "headers": {name: text(value) for name, value in one.headers.items()},
        }
        for one in records
    ]


def expected(log: Expected) -> list[Expected]:
    """Return the expected records of a log, without their ordinals."""
    return [{name: value for name, value in one.items() if name != "ordinal"} for one in log["records"]]


def read(client: Client, topic: str) -> tuple[list[Expected], list[Gap]]:
    """Return all records of a topic, and the gaps between them."""
    gaps: list[Gap] = []
    found = [message for batch in client.batches(topic, on_gap=gaps.append) for message in batch]
    return content_of(found), gaps


def served(golden: Golden, start_broker: StartBroker, directory: str = "data") -> BrokerProcess:
    """Start a broker on the data directory, for which no record is too old."""
    return start_broker(directory=golden.root / directory, **FOREVER)


def opened(golden: Golden, topic: Expected) -> Log:
    """Open a topic's log, a day after it was written and in the same boot."""
    clock = ManualClock(START + DAY, tick=1_000)
    return Log.open(golden.folder(topic), log_id=topic["log"], clock=clock, others=("topic.json",))


def parts_of(transaction: Expected) -> list[StagedPart]:
    """Return the parts of a staged transaction."""
    return [StagedPart(*part) for part in transaction["parts"]]


def of_state(topic: Expected, state: str) -> list[Expected]:
    """Return the transactions of a topic in a state."""
    return [one for one in topic["transactions"] if one["state"] == state]


# -- without a broker --------------------------------------------------------------------------------------


@every_version
def test_reader_without_the_lock_reads_all_records_and_changes_no_byte(golden: Golden) -> None:
    before = golden.content()
    for topic in golden.topics:
        folder = golden.folder(topic)
        settings = topic_file.decode((folder / "topic.json").read_bytes())
        assert (settings.name, settings.log_id) == (topic["name"], topic["log"])
        assert topic["settings"].items() <= settings.settings.to_map().items()
        if topic["records"]:
            found, _, _ = verify_log(folder)
            visible = (
                1 if topic["name"] == "decided" else None
            )  # its transaction is not finished before a broker opens it
            assert content_of(found) == expected(topic)[:visible]
            dumped = Command("", [])("log", "dump", str(folder), "--format", "jsonl")
            assert [one["pointer"] for one in dumped.objects] == [one.pointer for one in found]
    verified = Command("", [])("log", "verify", str(golden.root / "data"))
    assert verified.status == 1, "one of them is damaged"
    whole = {line.partition(":")[0] for line in verified.lines if line.endswith(": whole")}
    assert whole == {topic["name"] for topic in golden.topics} - {"damaged", "empty"}
    assert golden.content() == before


@every_version
def test_log_goes_on_with_records_ordinals_and_transactions(golden: Golden) -> None:
    """In the same boot, by the checkpoint, which has the transactions, too."""
    for topic in golden.topics:
        with opened(golden, topic) as log:
            assert content_of(salvaged(log)) == expected(topic)
            assert (log.first_ordinal, log.end_ordinal) == (topic["first_ordinal"], topic["end_ordinal"])
            transactions = log.transactions()
            for one in topic["transactions"]:
                standing = transactions.standing(producer_of(one["application"]), one["version"])
                assert standing.state == one["state"]
            newest = log.append(b"new").first
            assert newest > max((one["pointer"] for one in topic["records"]), default=0)


@every_version
def test_producers_go_on_with_their_numbering(golden: Golden) -> None:
    """A day later, because a log forgets producers after a week of silence."""
    for topic in golden.topics:
        with opened(golden, topic) as log:
            for one in topic["producers"]:
                count = one["last"] - one["first"] + 1
                retry = outcome_of(log, one["batch"].encode("latin-1"))
                assert retry == Appended(one["first"], one["last"], count, duplicate=True)
    assert sum(len(topic["producers"]) for topic in golden.topics) == 5
    with opened(golden, golden.topic("orders")) as log:
        assert outcome_of(log, encoded([b"other records"], 11, 3)) == "sequence_reused"
        assert outcome_of(log, encoded([b"next but one"], 11, 5)) == "out_of_sequence"
        assert isinstance(outcome_of(log, encoded([b"next"], 11, 4)), Appended)
        assert isinstance(outcome_of(log, encoded([b"any higher one"], 12, 1_000, sparse=True)), Appended)
        assert outcome_of(log, encoded([b"hole"], 13, 7, ordinal=True)) == "out_of_sequence"
        assert isinstance(outcome_of(log, encoded([b"next"], 13, 6, ordinal=True)), Appended)


@every_version
def test_embedded_log_is_read_and_goes_on_and_its_forwarding_progress_holds(golden: Golden) -> None:
    outbox, directory = golden.expected["outbox"], golden.root / "outbox"
    mark = forwarding_progress.read_mark(directory / "orders.forward")
    assert mark is not None
    assert outbox["mark"].items() <= mark.items()
    assert forwarding_progress.released(directory) == 0
    with Reader(directory) as reader:
        assert content_of(reader) == expected(outbox)
    with Log.open(directory, clock=ManualClock(START + DAY)) as log:
        assert (log.log_id, content_of(log.read())) == (outbox["log"], expected(outbox))
        log.append(b"new")
        assert log.end_ordinal == outbox["end_ordinal"] + 1


# -- a broker ----------------------------------------------------------------------------------------------


@every_version
def test_broker_serves_every_record_that_was_stored(golden: Golden, start_broker: StartBroker) -> None:
    """In another boot: it appends behind the old records, and serves all of them after a restart."""
    broker = served(golden, start_broker)
    with quoth.connect(broker.url) as client:
        assert sorted(client.topics()) == sorted(topic["name"] for topic in golden.topics)
        for again in (False, True):
            for topic in golden.topics:
                found, gaps = read(client, topic["name"])
                new = [b"new"] if again else []
                assert found[: len(topic["records"])] == expected(topic), topic["name"]
                assert [one["value"].encode() for one in found[len(topic["records"]) :]] == new
                lost = topic["end_ordinal"] - topic["first_ordinal"] - len(topic["records"])
                assert sum(gap.records for gap in gaps if gap.reason == "damaged") == lost
                info = client.topic(topic["name"])
                assert topic["settings"].items() <= info.settings.items()
                assert (info.log, info.first_ordinal, info.problem) == (
                    topic["log"],
                    topic["first_ordinal"],
                    "",
                )
                if not again:
                    client.publish(topic["name"], b"new")
            if not again:
                assert broker.terminate() == 0
                broker.restart()


@every_version
def test_broker_knows_every_transaction_and_publishes_what_is_staged(
    golden: Golden, start_broker: StartBroker
) -> None:
    with quoth.connect(served(golden, start_broker).url) as client:
        for topic in golden.topics:
            for one in of_state(topic, "published"):
                transaction = client.transaction(topic["name"], one["application"], one["version"])
                status = transaction.status()
                assert (status.state, status.first, status.last) == ("published", one["first"], one["last"])
                again = transaction.publish([])
                assert (again.first, again.count, again.duplicate) == (one["first"], one["count"], True)
            for one in of_state(topic, "staged"):
                transaction = client.transaction(topic["name"], one["application"], one["version"])
                assert transaction.status().state == "staged"
                ack = transaction.publish(parts_of(one))
                new = [record for record in read(client, topic["name"])[0] if record["pointer"] >= ack.first]
                assert [record["value"] for record in new] == one["values"]
                assert transaction.status().parts == 0, "the attempt that died is gone"
    states = [one["state"] for topic in golden.topics for one in topic["transactions"]]
    assert sorted(states) == ["published"] * 3 + ["staged"] * 2


# -- backup and archive ------------------------------------------------------------------------------------


@every_version
def test_backup_is_restored_whole(golden: Golden, start_broker: StartBroker) -> None:
    restored = Command("", [])("restore", str(golden.root / "backup"), str(golden.root / "restored"))
    assert restored.status == 0, restored.err
    broker = served(golden, start_broker, "restored")
    with quoth.connect(broker.url) as client:
        assert sorted(client.topics()) == sorted(golden.expected["backup"])
        for name in golden.expected["backup"]:
            topic = golden.topic(name)
            assert read(client, name)[0] == expected(topic)
            assert client.topic(name).log == topic["log"]


@every_version
def test_archive_verifies_and_holds_every_record(golden: Golden) -> None:
    root = golden.root / "archive"
    manifest = read_manifest(root)
    assert sorted(log.topic for log in manifest.logs) == sorted(golden.expected["archive"])
    for log in manifest.logs:
        topic = golden.topic(log.topic)
        assert (log.log, log.ordinal, log.lost) == (topic["log"], topic["end_ordinal"], 0)
        rows = rows_of(root, log.topic)
        assert [one["ordinal"] for one in rows] == [one["ordinal"] for one in topic["records"]]
        cells = [
            {**one, "headers": {cell["key"]: cell["value"] for cell in one["headers"] or ()}} for one in rows
        ]
        records = [Record(one["offset"], one["value"], one["key"], one["headers"]) for one in cells]
        assert content_of(records) == expected(topic)
        batches = [
            batch for path in archived_files(root, log.topic) for batch in pq.ParquetFile(path).iter_batches()
        ]
        assert total(map(fingerprint, batches)) == total(file.hash for file in log.files)


# -- the directories themselves ----------------------------------------------------------------------------


def test_recorder_writes_the_same_bytes_each_time(written_now: Path, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    recorder = Recorder(tmp_path / "again")
    recorder.write_data()
    for path in sorted((written_now / "data").rglob("*")):
        if path.is_file():
            assert (recorder.data / path.relative_to(written_now / "data")).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("version", sorted(path.name for path in RECORDED.glob("v*")))
def test_recorded_files_are_small_and_name_no_machine(version: str) -> None:
    files = [path for path in (RECORDED / version).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= BYTES_MAX
    for path in files:
        content = path.read_bytes()
        assert not any(sign in content for sign in (b"/tmp", b"/home", b"/root", b"pytest")), path
        assert "lock" not in path.name
