"""The golden directory: files of every kind that lies on a disk, as this version writes them, and what is
in them.

    PYTHONPATH=tests python -m kit.disk.golden FOLDER       makes them anew, in a folder that is not there yet

    FOLDER/data          a broker's data directory
    FOLDER/outbox        a log without a broker, with a mark of a forwarding
    FOLDER/backup        a backup of data's sound topics
    FOLDER/archive       two of its topics as Parquet
    FOLDER/said.json     what all that holds, by what was written

Neither chance nor the machine has a part in it: ids are given, the clock stands where it is put. So the same
code makes the same bytes, apart from the archive, whose files pyarrow writes as its own version does.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import quoth
from kit.broker.brokers import BrokerProcess
from kit.broker.transactions import Loader
from kit.clocks import START, ManualClock
from kit.disk.damage import flip
from kit.disk.doubles import Died, FaultyDisk
from kit.disk.logs import boundaries, segments
from kit.spark.workers import LocalWorkers
from quoth.forward.source import ForwardingProgress
from quoth.spark import connections
from quoth.spark.archive.archiver import TopicArchiver
from quothd.config.config import Config
from quothd.datadir import catalog
from quothd.datadir.backup import backup
from quothlog import Appended, Log, file_format
from quothlog.datadir import topic_file
from quothlog.datadir.topic_file import TopicFile
from quothlog.reading import forwarding_progress
from quothlog.recovery.repair import repair
from quothwire import batch
from quothwire.batch import Flag
from quothwire.headers import encode_headers
from quothwire.protocol.transaction import StagedPart
from quothwire.settings import TopicSettings

FOREVER: dict[str, Any] = {"worker_timeout": 86_400, "staged_max_age": 1e9, "scrub_interval": 0}
"""Settings of a broker for which nothing in there is old."""
SMALL = TopicSettings(size_limit=2_048)
"""Segments so small that a transaction of some kilobytes is published by giving its files other names."""
LARGE = {
    part: [[b"%d.%d.%d %s" % (part, number, row, b"." * 150) for row in range(2)] for number in range(3)]
    for part in (2, 0, 1)
}
"""The batches of a large transaction, by its parts in the order in which they are published. Two parts are
too much for one segment, so that files become segments as they are; the last one is always copied."""
ORDERS, LEDGER, NAMED, EMPTY = 0x51, 0x52, 0x53, 0x54
DECIDED, UNDECIDED, DAMAGED, OUTBOX = 0x55, 0x56, 0x57, 0x58

Said = dict[str, Any]
Parts = Mapping[int, list[list[bytes]]]
Columns = tuple[Sequence[bytes], Sequence[bytes | None] | None, Sequence[Mapping[str, bytes]] | None]


@dataclass
class Writing:
    """A log that is being written, and what was written to it."""

    log: Log
    records: list[Said] = field(default_factory=list)
    producers: list[Said] = field(default_factory=list)
    transactions: list[Said] = field(default_factory=list)

    def note(self, appended: Appended, columns: Columns) -> None:
        """These records got their pointers."""
        values, keys, headers = columns
        ordinal = self.records[-1]["ordinal"] + 1 if self.records else self.log.first_ordinal
        for row, value in enumerate(values):
            cells = {} if headers is None else {name: text(cell) for name, cell in headers[row].items()}
            key = None if keys is None else keys[row]
            found = {"value": text(value), "key": None if key is None else text(key), "headers": cells}
            self.records.append({"pointer": appended.first + row, "ordinal": ordinal + row, **found})

    def put(
        self,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Mapping[str, bytes]] | None = None,
        **claims: int,
    ) -> None:
        """Append a batch. claims: producer, sequence, flags."""
        cells = None if headers is None else [encode_headers(one) for one in headers]
        raw = batch.encode(values, keys, cells, **claims)
        (appended,) = self.log.append_batches([raw])
        assert isinstance(appended, Appended), appended
        self.note(appended, (values, keys, headers))
        if claims:
            self.producers = [one for one in self.producers if one["producer"] != claims["producer"]]
            found: Said = {"batch": text(raw), "first": appended.first, "last": appended.last}
            self.producers.append({"producer": claims["producer"], **found})

    def publish(self, application: str, version: int, parts: Parts) -> None:
        """Stage the parts of a transaction and publish it."""
        loader = Loader(self.log, application)
        staged = [loader.stage(version, part, batches) for part, batches in parts.items()]
        self.published(application, version, loader.publish(version, staged), parts)

    def published(self, application: str, version: int, appended: Appended, parts: Parts) -> None:
        """A transaction got its pointers."""
        self.note(appended, (values_of(parts), None, None))
        found = {
            "state": "published",
            "first": appended.first,
            "last": appended.last,
            "count": len(values_of(parts)),
        }
        self.transactions.append({"application": application, "version": version, **found})

    def stage(self, application: str, version: int, parts: Parts) -> None:
        """Stage the parts of a transaction, and of the first one another attempt that counts for nothing."""
        loader = Loader(self.log, application)
        staged = [loader.stage(version, part, batches) for part, batches in parts.items()]
        first, batches = next(iter(parts.items()))
        loader.stage(version, first, batches[:1], attempt=9)
        self.staged(application, version, staged, parts)

    def staged(self, application: str, version: int, staged: Sequence[StagedPart], parts: Parts) -> None:
        """Take note of staged parts that can be published."""
        found = {"parts": [list(part) for part in staged], "values": list(map(text, values_of(parts)))}
        self.transactions.append({"application": application, "version": version, "state": "staged", **found})

    def said(self) -> Said:
        """Return what a reader of the log has to find."""
        kept = [one for one in self.records if one["ordinal"] >= self.log.first_ordinal]
        return {
            "log": self.log.log_id,
            "first_ordinal": self.log.first_ordinal,
            "end_ordinal": self.records[-1]["ordinal"] + 1,
            "records": kept,
            "producers": self.producers,
            "transactions": self.transactions,
        }


class Recorder:
    """Makes the golden directory in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.clock = ManualClock(START, tick=1_000)

    def write_data(self) -> list[Said]:
        (self.data / "topics").mkdir(parents=True)
        return [
            self.orders(), self.ledger(), self.named(), self.empty(), self.decided(), self.undecided(),
            self.damaged(),
        ]  # fmt: skip

    def write(self) -> Said:
        """Make all of it; returns what it holds."""
        topics = self.write_data()
        outbox = self.outbox()
        sound = ["orders", "ledger", "größe & maß", "empty"]
        self.back_up(sound)
        archived = ["orders", "ledger"]
        self.archive(archived)
        for path in self.root.rglob("*lock"):  # they tell who was at work, and nothing of what is there
            path.unlink()
        return {"topics": topics, "outbox": outbox, "backup": sound, "archive": archived}

    # -- the data directory -------------------------------------------------------------------------------

    def orders(self) -> Said:
        """Sealed segments of which the first are trimmed; every shape of a record, every kind of producer."""
        settings = TopicSettings("synced", max_age=1e9, max_bytes=10**9, count_limit=6, age_limit=1e9)
        topic, writing = self._begin("orders", ORDERS, settings)
        for row in range(4):
            writing.put([b"trimmed %d" % row, b"trimmed, too"])
        writing.log.roll()
        writing.log.trim(writing.log.newest + 1)
        writing.put([b"plain"])
        writing.put([b"", b"behind an empty one", bytes(range(256))])
        writing.put([b"a", b"b", b"c"], keys=[b"key", None, b""])
        headers = [{"a": b"1", "größe": b"\xff"}, {}, {"empty": b""}]
        writing.put([b"d", b"e", b"f"], headers=headers)
        writing.put([b"g", b"h", b"i"], keys=[None, b"\0", b"k"], headers=headers[::-1])
        for sequence in (1, 2, 3):
            writing.put([b"dense %d" % sequence, b"two"], producer=11, sequence=sequence)
        sparse, counting = int(Flag.SPARSE), int(Flag.ORDINAL)
        writing.put([b"sparse 10"], producer=12, sequence=10, flags=sparse | Flag.START)
        writing.put([b"sparse 30"], producer=12, sequence=30, flags=sparse)
        writing.put([b"1", b"2", b"3"], producer=13, sequence=1, flags=counting | Flag.START)
        writing.put([b"4", b"5"], keys=[b"4", None], producer=13, sequence=4, flags=counting)
        writing.publish("etl/orders", 41, {0: [[b"part 0"], [b"part 0, more"]], 1: [[b"part 1"]]})
        writing.stage("etl/orders", 42, {1: [[b"staged 1"], [b"more"]], 0: [[b"staged 0", b"staged"]]})
        writing.log.close()
        return {**topic, **writing.said()}

    def ledger(self) -> Said:
        """A large transaction, whose staged files became segments."""
        topic, writing = self._begin("ledger", LEDGER, SMALL)
        writing.put([b"before"])
        writing.publish("loader", 1, LARGE)
        writing.put([b"behind"], producer=14, sequence=1)
        writing.log.close()
        return {**topic, **writing.said()}

    def named(self) -> Said:
        """A name that has to be quoted; a process that died in the middle of a write."""
        topic, writing = self._begin("größe & maß", NAMED)
        writing.put([b"one", b"two"], producer=15, sequence=1)
        writing.log.sync()
        writing.log.discard()
        torn = batch.encode([b"the answer to this publish was never sent"])
        with segments(self._path(topic))[-1].open("ab") as file:
            file.write(torn[: len(torn) // 2])
        return {**topic, **writing.said()}

    def empty(self) -> Said:
        """A topic without a record: settings and nothing else."""
        topic = self._make("empty", EMPTY, TopicSettings())
        nothing: Said = {"records": [], "producers": [], "transactions": []}
        return {**topic, "log": EMPTY, "first_ordinal": 0, "end_ordinal": 0, **nothing}

    def decided(self) -> Said:
        """A large publication that was broken off when it was decided: the plan, and the segment it names."""
        topic, writing, staged = self._broken_off("decided", DECIDED, renames=2)
        first = file_format.floor_of(segments(self._path(topic))[-1].name)
        count = sum(part.records for part in staged)
        assert first is not None
        appended = Appended(first - count, first - 1, count, False)
        writing.published("loader", 1, appended, LARGE)
        return {**topic, **writing.said()}

    def undecided(self) -> Said:
        """One that was broken off just before: the plan, and no such segment."""
        topic, writing, staged = self._broken_off("undecided", UNDECIDED, renames=1)
        writing.staged("loader", 1, staged, LARGE)
        return {**topic, **writing.said()}

    def damaged(self) -> Said:
        """A repaired segment, one that is damaged, and a quarantined end."""
        topic, writing = self._begin("damaged", DAMAGED, TopicSettings(count_limit=3))
        path = self._path(topic)
        for row in range(7):
            writing.put([b"record %d" % row])
        writing.log.discard()
        with segments(path)[-1].open("ab") as file:
            file.write(b"torn " * 20)
        writing.log = self._open(path, DAMAGED, TopicSettings(count_limit=3))
        writing.put([b"behind the torn end"])
        writing.log.close()
        for number in (0, 1):
            one = segments(path)[number]
            flip(one, boundaries(one, DAMAGED)[1] + batch.HEADER_BYTES + 8)
            if number == 0:
                list(repair(path, log_id=DAMAGED, others=(topic_file.NAME,), clock=self.clock))
        said = writing.said()
        lost = {"record 1", "record 4"}
        said["records"] = [one for one in said["records"] if one["value"] not in lost]
        return {**topic, **said}

    def outbox(self) -> Said:
        """A log that stamps itself as the producer, and the mark of who carries it elsewhere."""
        path = self.root / "outbox"
        writing = Writing(self._open(path, OUTBOX, TopicSettings(count_limit=2)))
        for row in range(5):
            columns: Columns = [b"%d" % row], [b"key"], [{"row": b"%d" % row}]
            values, keys, headers = columns
            writing.note(writing.log.append(values, keys=keys, headers=headers), columns)
        standing = ForwardingProgress(OUTBOX, OUTBOX, writing.records[1]["pointer"], 2, START, ORDERS)
        about = {"from": "outbox", "url": "tcp://127.0.0.1:5555", "topic": "orders", "trim": False}
        forwarding_progress.write_mark(path / "orders.forward", {**about, **standing._asdict()})
        said = {**writing.said(), "mark": {**about, **standing._asdict()}}
        writing.log.close()
        return said

    # -- what is made of it -------------------------------------------------------------------------------

    def back_up(self, names: Sequence[str]) -> None:
        """Copy some topics as they are now."""
        folders = [one for one in catalog.scan(self.data).folders if one.topic.name in names]
        for outcome in backup(
            folders, self.root / "backup", self.clock.now(), lambda _size: None, exact=True
        ):
            assert outcome.problem is None, outcome
            assert not outcome.damages, outcome

    def archive(self, names: Sequence[str]) -> None:
        """Write some topics as Parquet, from a broker that serves a copy of them."""
        with tempfile.TemporaryDirectory() as beside:
            shutil.copytree(self.data, Path(beside) / "data")
            broker = BrokerProcess(Path(beside) / "data", **FOREVER)
            try:
                with quoth.connect(broker.start().url) as client:
                    TopicArchiver(client, self.root / "archive", LocalWorkers(), names).run()
            finally:
                for at in [at for at in connections._clients if broker.url in at]:
                    connections._clients.pop(at).close()
                broker.close()

    # -- inside ---------------------------------------------------------------------------------------------

    def _make(self, name: str, log_id: int, settings: TopicSettings) -> Said:
        path = catalog.make(self.data, TopicFile(name, log_id, settings))
        return {"name": name, "folder": path.name, "settings": asdict(settings)}

    def _begin(self, name: str, log_id: int, settings: TopicSettings | None = None) -> tuple[Said, Writing]:
        settings = settings or TopicSettings()
        topic = self._make(name, log_id, settings)
        return topic, Writing(self._open(self._path(topic), log_id, settings))

    def _open(self, path: Path, log_id: int, settings: TopicSettings, disk: FaultyDisk | None = None) -> Log:
        options = Config().log_options(settings)
        others = (topic_file.NAME,)
        return Log.open(
            path, options=options, log_id=log_id, filesystem=disk, clock=self.clock, others=others
        )

    def _path(self, topic: Said) -> Path:
        return self.data / "topics" / str(topic["folder"])

    def _broken_off(self, name: str, log_id: int, renames: int) -> tuple[Said, Writing, list[StagedPart]]:
        """A topic on whose disk nothing was renamed any more, after so many times, in a large publication."""
        topic = self._make(name, log_id, SMALL)
        disk = FaultyDisk()
        writing = Writing(self._open(self._path(topic), log_id, SMALL, disk))
        writing.put([b"before"])
        loader = Loader(writing.log)
        staged = [loader.stage(1, part, batches) for part, batches in LARGE.items()]
        died = Died("in the middle of it")
        disk.fail("rename", renames + 1, died, lasting=True)
        disk.fail("remove", 1, died, lasting=True)
        with suppress(Died):
            loader.publish(1, staged)
        assert disk.struck_any
        writing.log.discard()
        return topic, writing, staged


def values_of(parts: Parts) -> list[bytes]:
    """Return the values of all parts in their order."""
    return [value for batches in parts.values() for values in batches for value in values]


def text(data: bytes) -> str:
    """Bytes as they stand in JSON: each is the character of its number."""
    return data.decode("latin-1")


def write(root: Path) -> None:
    """Make a golden directory in a folder that is not there yet."""
    root.mkdir(parents=True)
    (root / "said.json").write_text(json.dumps(Recorder(root).write(), indent=1) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
