"""`quoth backup` and `quoth restore`: beside a broker that works, and into one that has never been."""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_hexdigest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import DEADLINE_S, eventually
from kit.disk.damage import flip
from kit.disk.logs import segments
from kit.machine.commands import Command
from kit.machine.processes import listing
from quoth import Message
from quothd import Broker

SMALL_SEGMENTS = 20_000
ENOUGH_ACKS = 50
MANY = 600
"""Records of 500 to 1,500 bytes: enough segments that some are done half way."""
STOPS_HALF_WAY = """
import os, signal
from quothcli.commands.files import backup

shown = backup.byte_progress

def stopping(what, total, limit=None):
    done = 0

    def count(size):
        nonlocal done
        done += size
        if what != "checking" and done - size < total / 2 <= done:
            os.kill(os.getpid(), signal.SIGSTOP)

    return shown(what, total, count)

backup.byte_progress = stopping
"""
"""Lets a backup, or a restore, stand still until SIGCONT when half of its bytes are done."""


class Place:
    """A data directory, its backup, and commands for both."""

    def __init__(self, command: Command, data: Path, to: Path) -> None:
        self.command = command
        self.data = data
        self.to = to

    def backup(self, *options: str, status: int = 0) -> list[Any]:
        """Back up; returns what it says of the topics."""
        told = self.command("backup", str(self.data), str(self.to), *options, "--format", "json")
        assert told.status == status, told
        return told.objects

    def restore(self, at: Path, *options: str, status: int = 0) -> list[Any]:
        """Restore; returns what it says of the topics."""
        told = self.command("restore", str(self.to), str(at), *options, "--format", "json")
        assert told.status == status, told
        verified = self.command("log", "verify", str(at), "--format", "json")
        assert status or all(row["whole"] and not row["missing"] for row in verified.objects)
        return told.objects


@pytest.fixture
def source(start_broker: StartBroker) -> BrokerProcess:
    """The broker whose data is backed up."""
    return start_broker(size_limit=SMALL_SEGMENTS)


@pytest.fixture
def place(source: BrokerProcess, alone: Command, tmp_path: Path) -> Place:
    """Its data and where the backup goes."""
    return Place(alone, source.directory, tmp_path / "backup")


@pytest.fixture
def client(source: BrokerProcess) -> Iterator[quoth.Client]:
    """A client of that broker."""
    with quoth.connect(source.url) as client:
        yield client


Revive = Callable[[Path], quoth.Client]


@pytest.fixture
def revive(start_broker: StartBroker) -> Iterator[Revive]:
    """Start a broker on a restored directory; gives a client of it."""
    clients: list[quoth.Client] = []

    def start(directory: Path) -> quoth.Client:
        clients.append(quoth.connect(start_broker(directory=directory).url))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


def everything(client: quoth.Client, topic: str) -> list[Message]:
    """All records of a topic."""
    return [message for batch in client.batches(topic) for message in batch]


def test_topics_come_back_as_they_were(
    place: Place, client: quoth.Client, revive: Revive, tmp_path: Path
) -> None:
    client.create_topic("orders", durability="synced", max_bytes=10**9)
    with client.producer("orders") as producer:
        for number in range(3_000):
            producer.send(b"%d" % number, key=b"k", headers={"n": b"1"})
    client.publish("a.b~c %2F", [b"", b"\0\xff"])
    client.create_topic("empty")
    names = ["a.b~c %2F", "empty", "orders"]
    expected = {name: everything(client, name) for name in names}
    cursor = expected["orders"][1_000].pointer
    rows = place.backup()
    assert [(row["topic"], row["records"], row["damages"]) for row in rows] == [
        ("a.b~c %2F", 2, []), ("empty", 0, []), ("orders", 3_000, []),
    ]  # fmt: skip
    later = client.publish("orders", b"after the backup").last
    told = place.restore(tmp_path / "restored")
    assert [(row["topic"], row["records"]) for row in told] == [
        (row["topic"], row["records"]) for row in rows
    ]
    back = revive(tmp_path / "restored")
    assert back.topics() == names
    assert {name: everything(back, name) for name in names} == expected
    was, found = client.topic("orders"), back.topic("orders")
    assert (found.log, found.settings, found.problem) == (was.log, was.settings, "")
    assert next(iter(back.read("orders", after=cursor))) == expected["orders"][1_001]
    assert back.publish("orders", b"new").first > later
    assert [message.value for message in back.read("orders", after=later)] == [b"new"]


def test_a_backup_beside_those_who_write_is_one_moment_of_all_topics(
    place: Place, source: BrokerProcess, tmp_path: Path, revive: Revive
) -> None:
    """Whoever writes to `effects` has written to `causes` before, and has the answer."""
    ended = threading.Event()
    acked = [0]

    def write() -> None:
        with quoth.connect(source.url) as client:
            while not ended.is_set():
                for topic in ("causes", "effects"):
                    client.publish(topic, b"%d" % acked[0] * 20)
                acked[0] += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            least = acked[0] + ENOUGH_ACKS
            eventually(partial(acked.__gt__, [least]), "it writes")
            before = acked[0]
            place.backup()
            at = tmp_path / f"restored-{number}"
            causes, effects = (row["records"] for row in place.restore(at))
            assert effects >= before
            assert effects <= causes <= effects + 1
    finally:
        ended.set()
        writer.join()
    back = revive(at)
    assert [len(everything(back, topic)) for topic in ("causes", "effects")] == [causes, effects]


def test_a_moment_of_the_past(place: Place, client: quoth.Client, revive: Revive, tmp_path: Path) -> None:
    acks = [client.publish("orders", [b"%d" % number] * 5) for number in range(10)]
    rows = place.backup("--until", str(acks[6].first + 2))
    assert [row["records"] for row in rows] == [35]
    assert [row["records"] for row in place.restore(tmp_path / "six")] == [35]
    told = place.restore(tmp_path / "three", "--until", str(acks[4].first - 1), "--as", "orders then")
    assert [(row["topic"], row["records"], row["last"]) for row in told] == [
        ("orders then", 20, acks[3].last)
    ]
    back = revive(tmp_path / "three")
    assert [message.pointer for message in everything(back, "orders then")] == [
        pointer for ack in acks[:4] for pointer in range(ack.first, ack.last + 1)
    ]
    assert back.publish("orders then", b"new").first > acks[-1].last


def test_the_next_backup_copies_what_is_new(place: Place, client: quoth.Client, tmp_path: Path) -> None:
    for number in range(100):
        client.publish("orders", b"%d" % number * 500)
    (first,) = place.backup()
    assert first["copied"] == first["bytes"] > 3 * SMALL_SEGMENTS
    (second,) = place.backup()
    assert second["copied"] == 0
    client.publish("orders", b"one more")
    (third,) = place.backup()
    assert 0 < third["copied"] < 2 * SMALL_SEGMENTS
    assert [row["records"] for row in place.restore(tmp_path / "restored")] == [101]


def test_a_topic_that_is_deleted_stays_in_the_backup(
    place: Place, client: quoth.Client, tmp_path: Path
) -> None:
    client.publish("orders", b"old")
    (old,) = place.backup()
    client.delete_topic("orders")
    assert place.backup() == []
    client.publish("orders", [b"new", b"newer"])
    client.publish("others", b"x")
    (new,) = place.backup("--topic", "orders")
    assert [(row["topic"], row["records"]) for row in place.restore(tmp_path / "a")] == [("orders", 2)]
    told = place.restore(tmp_path / "b", "--topic", old["folder"])
    assert [(row["topic"], row["records"]) for row in told] == [("orders", 1)]
    assert place.restore(tmp_path / "c", "--topic", old["folder"], "--topic", new["folder"], status=1) == []
    assert place.restore(tmp_path / "c", "--topic", old["folder"], "--as", "orders before") != []
    assert [row["records"] for row in place.restore(tmp_path / "c", "--topic", "orders")] == [2]


def test_a_backup_that_is_killed_is_none_and_the_next_one_goes_on(
    place: Place, client: quoth.Client, tmp_path: Path
) -> None:
    for number in range(MANY):
        client.publish("orders", b"%d" % number * 500)
    running = place.command.prepared(STOPS_HALF_WAY).start("backup", str(place.data), str(place.to))
    running.wait_until_stopped()
    assert list(place.to.glob("*/*.seg")), "a segment has been copied"
    running.end(signal.SIGKILL)
    told = place.command("restore", str(place.to), str(tmp_path / "restored"))
    assert told.status == 3
    assert "no finished backup, it has no backup.json" in told.err
    assert not (tmp_path / "restored").exists()
    (row,) = place.backup()
    assert 0 < row["copied"] < row["bytes"]
    assert [row["records"] for row in place.restore(tmp_path / "restored")] == [MANY]


def test_a_full_disk_is_told_and_the_last_backup_stays(
    place: Place, client: quoth.Client, tmp_path: Path
) -> None:
    client.publish("orders", b"x" * 1_000)
    place.backup()
    client.publish("orders", [b"y" * 1_000] * 10)
    limit = 4_000
    full = place.command.start(
        "backup", str(place.data), str(place.to),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    ).end()  # fmt: skip
    assert full.status == 1
    assert "quoth: disk_low: " in full.err
    assert "the last backup there is as it was" in full.err
    assert [row["records"] for row in place.restore(tmp_path / "before")] == [1]
    place.backup()
    assert [row["records"] for row in place.restore(tmp_path / "after")] == [11]


def test_a_restore_that_fails_leaves_nothing(place: Place, client: quoth.Client, tmp_path: Path) -> None:
    client.publish("orders", [b"y" * 1_000] * 10)
    place.backup()
    limit, at = 4_000, tmp_path / "restored"
    full = place.command.start(
        "restore", str(place.to), str(at),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    ).end()  # fmt: skip
    assert full.status == 1
    assert "quoth: disk_low: " in full.err
    assert listing(at) == ["lock", "topics"]
    assert [row["records"] for row in place.restore(at)] == [10]


def test_a_restore_that_is_killed_is_none_and_may_be_done_again(
    place: Place, client: quoth.Client, tmp_path: Path
) -> None:
    for number in range(MANY):
        client.publish("orders", b"%d" % number * 500)
    place.backup()
    at = tmp_path / "restored"
    running = place.command.prepared(STOPS_HALF_WAY).start("restore", str(place.to), str(at))
    running.wait_until_stopped()
    assert list(at.glob("topics/.new~*/*.seg")), "a segment has been written"
    running.end(signal.SIGKILL)
    assert list(at.glob("topics/orders~*")) == []
    assert [row["records"] for row in place.restore(at)] == [MANY]


def test_settings_that_are_damaged_are_told(place: Place, source: BrokerProcess, tmp_path: Path) -> None:
    with quoth.connect(source.url) as client:
        client.create_topic("orders", max_bytes=10**9)
        client.publish("orders", b"x")
    source.terminate()
    (path,) = place.data.glob("topics/*/topic.json")
    flip(path, 30)
    told = place.command("backup", str(place.data), str(place.to))
    assert (told.status, f"quoth: damaged: {path}: " in told.err) == (1, True)
    (row,) = place.restore(tmp_path / "restored")
    assert (row["topic"], row["records"]) == ("orders", 1)


def test_damage_is_told_and_copied_as_it_is(place: Place, source: BrokerProcess, tmp_path: Path) -> None:
    with quoth.connect(source.url) as client:
        for value in (b"one", b"two", b"three"):
            client.publish("orders", value)
    source.terminate()
    (path,) = segments(next(source.topics_directory.iterdir()))
    flip(path, path.read_bytes().index(b"two"))
    told = place.command("backup", str(place.data), str(place.to))
    assert told.status == 1
    assert f"quoth: damaged: {path}: " in told.err
    assert "1 record missing" in told.err
    assert place.command("restore", str(place.to), str(tmp_path / "restored")).status == 0
    dumped = place.command("log", "dump", str(tmp_path / "restored"), "--format", "raw")
    assert (dumped.status, dumped.lines) == (1, ["one", "three"])


@pytest.mark.parametrize("harm", ["changed", "missing", "manifest"])
def test_a_backup_that_is_not_what_it_was_is_not_restored(
    place: Place, client: quoth.Client, tmp_path: Path, harm: str
) -> None:
    for topic in ("a", "b"):
        client.publish(topic, b"x" * 100)
    place.backup()
    (path,) = place.to.glob("b~*/*.seg")
    if harm == "missing":
        path.unlink()
    else:
        flip(path if harm == "changed" else place.to / "backup.json", 150)
    told = place.command("restore", str(place.to), str(tmp_path / "restored"))
    assert told.status == 1
    assert "quoth: damaged: " in told.err
    assert not (tmp_path / "restored").exists()
    if harm != "manifest":
        assert [row["topic"] for row in place.restore(tmp_path / "restored", "--topic", "a")] == ["a"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("folder", "../elsewhere~0000000000000001"),
        ("log", "../../x"),
        ("newest", 2**56),
        ("name", None),
        ("until", []),
    ],
)
def test_a_manifest_that_says_anything_is_refused_in_a_sentence(
    place: Place, client: quoth.Client, tmp_path: Path, field: str, value: object
) -> None:
    client.publish("a", b"x")
    place.backup()
    manifest = place.to / "backup.json"
    content = json.loads(manifest.read_bytes().splitlines()[0])
    content["topics"][0][field] = value
    line = json.dumps(content).encode()
    manifest.write_bytes(line + b"\n" + xxh3_64_hexdigest(line).encode() + b"\n")
    told = place.command("restore", str(place.to), str(tmp_path / "restored"))
    assert (told.status, len(told.err.splitlines())) == (1, 2)
    assert told.err.startswith(f"quoth: damaged: {manifest} is no manifest: ")
    assert not (tmp_path / "restored").exists()


def test_a_manifest_that_is_a_pipe_is_not_waited_for(place: Place, tmp_path: Path) -> None:
    place.to.mkdir()
    os.mkfifo(place.to / "backup.json")
    told = place.command("restore", str(place.to), str(tmp_path / "restored"))
    assert (told.status, "quoth: damaged: " in told.err) == (1, True)


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[Path]:
    """A file that links lead to; it is as it was at the end."""
    path = tmp_path / "precious"
    path.write_text("of another user")
    yield path
    assert path.read_text() == "of another user"


def put_no_file(path: Path, kind: str, precious: Path) -> None:
    """Put something at a path that is no regular file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(precious) if kind == "link" else os.mkfifo(path)


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("which", ["lock", "backup.json.tmp", "*.seg.tmp"])
def test_nothing_is_written_through_what_is_no_file_in_a_backups_folder(
    place: Place, client: quoth.Client, precious: Path, which: str, kind: str
) -> None:
    client.publish("orders", b"x")
    place.backup()
    (segment,) = place.to.glob("*/*.seg")
    path = segment.with_name(segment.name + ".tmp") if which == "*.seg.tmp" else place.to / which
    path.unlink(missing_ok=True)
    (place.to / "backup.json").unlink()
    segment.unlink()
    put_no_file(path, kind, precious)
    told = place.command("backup", str(place.data), str(place.to), seconds=DEADLINE_S)
    assert told.status == 1
    assert str(path) in told.err
    assert "stands where a file has to be" in told.err
    assert not (place.to / "backup.json").exists()


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("which", ["lock", "topics/.new~LOG"])
def test_nothing_is_written_through_what_is_no_file_in_a_restores_target(
    place: Place, client: quoth.Client, precious: Path, tmp_path: Path, which: str, kind: str
) -> None:
    client.publish("orders", b"x")
    place.backup()
    (folder,) = place.data.glob("topics/*")
    path = tmp_path / "restored" / which.replace("LOG", folder.name.rpartition("~")[2])
    put_no_file(path, kind, precious)
    told = place.command("restore", str(place.to), str(tmp_path / "restored"), seconds=DEADLINE_S)
    assert told.status == 1
    assert "stands where a" in told.err
    assert str(path) in told.err
    assert list(tmp_path.glob("restored/topics/*~*")) == [path for _ in range(which != "lock")]


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("which", ["topic.json.tmp", "*.seg.tmp"])
def test_what_an_unfinished_restore_left_is_cleared_away_and_not_written_to(
    place: Place, client: quoth.Client, precious: Path, tmp_path: Path, which: str, kind: str
) -> None:
    client.publish("orders", b"x")
    place.backup()
    (segment,) = place.data.glob("topics/*/*.seg")
    left = tmp_path / "restored" / "topics" / f".new~{segment.parent.name.rpartition('~')[2]}"
    put_no_file(left / which.replace("*.seg", segment.name), kind, precious)
    (row,) = place.restore(tmp_path / "restored")
    assert row["records"] == 1
    assert not left.exists()


def test_nothing_is_written_over(place: Place, client: quoth.Client, source: BrokerProcess) -> None:
    client.publish("orders", b"x")
    place.backup()
    told = place.command("restore", str(place.to), str(place.data))
    assert (told.status, "quoth: locked: " in told.err) == (1, True)
    source.terminate()
    before = listing(place.data)
    told = place.command("restore", str(place.to), str(place.data))
    assert told.status == 1
    assert "quoth: topic_exists: " in told.err
    assert "nothing was restored" in told.err
    assert listing(place.data) == before
    assert [row["topic"] for row in place.restore(place.data, "--as", "orders then")] == ["orders then"]
    source.restart()
    with quoth.connect(source.url) as again:
        assert again.publish("orders then", b"y").first > again.read("orders")[0].pointer
        again.publish("orders", b"z")
        assert [len(everything(again, topic)) for topic in ("orders", "orders then")] == [2, 2]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what somebody may name wrongly: data, a backup of it, a restored twin, something else."""
    folder, command = tmp_path_factory.mktemp("prepared"), Command("", [])
    with Broker(folder / "data") as broker, quoth.connect(broker) as client:
        for topic in ("a", "b"):
            client.publish(topic, b"x")
    for words in (("backup", "data", "to"), ("restore", "to", "twin")):
        assert command(words[0], str(folder / words[1]), str(folder / words[2])).status == 0
    (folder / "other").mkdir()
    (folder / "other" / "letter.txt").write_text("dear")
    return folder


@pytest.mark.parametrize(
    ("typed", "status", "said"),
    [
        (["backup", "DATA", "TO", "--topic", "nosuch"], 3, "unknown_topic: "),
        (["backup", "DATA/nosuch", "TO"], 3, "not_found: "),
        (["backup", "DATA/topics", "TO"], 2, "is no broker's data directory"),
        (["backup", "DATA", "DATA/backup"], 2, "a backup belongs on another disk"),
        (["backup", "DATA", "OTHER"], 2, "holds 'letter.txt', so it is no backup; nothing was changed"),
        (["backup", "DATA", "TWIN/topics"], 2, "so it is no backup; nothing was changed"),
        (["backup", "DATA", "TO", "--until", "2999-01-01"], 2, "is still to come"),
        (["backup", "DATA", "TO", "--until", "soon"], 2, "bad_pointer: "),
        (["restore", "OTHER", "NEW"], 3, "no finished backup"),
        (["restore", "nosuch", "NEW"], 3, "no finished backup"),
        (["restore", "TO", "NEW", "--topic", "nosuch"], 3, "holds no topic 'nosuch'"),
        (["restore", "TO", "NEW", "--as", "one name"], 2, "--as is for one topic, these are 2"),
        (["restore", "TO", "NEW", "--topic", "a", "--as", "a/b"], 2, "bad_topic: "),
        (["restore", "TO", "NEW", "--until", "now"], 2, "ends at "),
    ],
    ids=lambda value: " ".join(value).replace("/", "-") if isinstance(value, list) else None,
)
def test_what_is_typed_wrongly_is_told_and_changes_nothing(
    alone: Command, prepared: Path, typed: list[str], status: int, said: str
) -> None:
    before = {path: path.read_bytes() for path in prepared.glob("[a-z]*/**/*.*") if path.is_file()}
    names = {"DATA": "data", "TO": "to", "OTHER": "other", "TWIN": "twin", "NEW": "new"}
    words = [str(prepared / names[base] / rest) if base in names else word
             for word in typed for base, _, rest in [word.partition("/")]]  # fmt: skip
    told = alone(*words)
    assert (told.status, told.out) == (status, b"")
    assert said in told.err
    assert {path: path.read_bytes() for path in prepared.glob("[a-z]*/**/*.*") if path.is_file()} == before


def test_two_backups_into_one_folder_do_not_meet(place: Place, client: quoth.Client) -> None:
    for number in range(MANY):
        client.publish("orders", b"%d" % number * 500)
    running = place.command.prepared(STOPS_HALF_WAY).start("backup", str(place.data), str(place.to))
    pid = running.process.pid
    running.wait_until_stopped()
    told = place.command("backup", str(place.data), str(place.to))
    assert told.status == 1
    assert f"quoth: locked: {place.to} is in use by process {pid}" in told.err
    assert running.end(signal.SIGCONT).status == 0


def test_what_it_says_to_people(place: Place, client: quoth.Client, tmp_path: Path) -> None:
    last = client.publish("orders", [b"x"] * 1_000).last
    told = place.command("backup", str(place.data), str(place.to))
    size = json.loads((place.to / "backup.json").read_text().splitlines()[0])["topics"][0]["segments"][0][
        "bytes"
    ]
    assert told.lines == [
        f"orders: 1,000 records, {size / 1_000:.3g} kB, of which {size / 1_000:.3g} kB are new"
    ]
    assert told.err.startswith(f"quoth: {place.to} holds these topics as they were at 20")
    told = place.command("restore", str(place.to), str(tmp_path / "restored"))
    assert told.err == ""
    assert told.lines[0].startswith("orders: 1,000 records up to 20")
    assert place.restore(tmp_path / "again")[0]["last"] == last


def test_a_reader_that_has_enough_holds_back_no_topic(
    place: Place, client: quoth.Client, tmp_path: Path
) -> None:
    """What they print is not what they are for."""
    names = ["a", "b", "c"]
    for name in names:
        client.publish(name, b"1")
    at = tmp_path / "restored"
    for typed in (("backup", place.data, place.to), ("restore", place.to, at)):
        reading, writing = os.pipe()
        os.close(reading)
        ended = place.command.start(*map(str, typed), stdout=writing).end()
        os.close(writing)
        assert ended.status == 0, ended.err
    verified = place.command("log", "verify", str(at), "--format", "json").objects
    assert sorted(row["topic"] for row in verified) == names
