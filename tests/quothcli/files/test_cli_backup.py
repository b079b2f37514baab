"""`quoth backup` and `quoth restore`: beside a broker, killed, on a full disk, from a changed backup."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import threading
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import quoth
from kit.broker.brokers import BrokerProcess
from kit.client.records import messages
from kit.deadlines import DEADLINE_S, eventually
from kit.disk.backups import KINDS, MANY, STOPS_HALF_WAY, DataAndBackup, put_no_file
from kit.disk.damage import flip
from kit.disk.logs import segments
from kit.machine.commands import Command
from kit.machine.processes import listing
from quothd import Broker

ENOUGH_ACKS = 20
Revive = Callable[[Path], quoth.Client]


def test_backup_beside_a_producer_is_of_one_time_for_all_topics(
    place: DataAndBackup, source: BrokerProcess, tmp_path: Path, revive: Revive
) -> None:
    """Each record of `effects` is published after the answer for one of `causes`."""
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
        for number in range(2):
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
    assert [len(messages(back, topic)) for topic in ("causes", "effects")] == [causes, effects]


def test_backup_and_restore_of_an_earlier_time(
    place: DataAndBackup, client: quoth.Client, revive: Revive, tmp_path: Path
) -> None:
    acks = [client.publish("orders", [b"%d" % number] * 5) for number in range(10)]
    rows = place.backup("--until", str(acks[6].first + 2))
    assert [row["records"] for row in rows] == [35]
    assert [row["records"] for row in place.restore(tmp_path / "six")] == [35]
    result = place.restore(tmp_path / "three", "--until", str(acks[4].first - 1), "--as", "orders then")
    assert [(row["topic"], row["records"], row["last"]) for row in result] == [
        ("orders then", 20, acks[3].last)
    ]
    back = revive(tmp_path / "three")
    assert [message.pointer for message in messages(back, "orders then")] == [
        pointer for ack in acks[:4] for pointer in range(ack.first, ack.last + 1)
    ]
    assert back.publish("orders then", b"new").first > acks[-1].last


def test_deleted_topic_stays_in_the_backup(
    place: DataAndBackup, client: quoth.Client, tmp_path: Path
) -> None:
    client.publish("orders", b"old")
    (old,) = place.backup()
    client.delete_topic("orders")
    assert place.backup() == []
    client.publish("orders", [b"new", b"newer"])
    client.publish("others", b"x")
    (new,) = place.backup("--topic", "orders")
    assert [(row["topic"], row["records"]) for row in place.restore(tmp_path / "a")] == [("orders", 2)]
    result = place.restore(tmp_path / "b", "--topic", old["folder"])
    assert [(row["topic"], row["records"]) for row in result] == [("orders", 1)]
    assert place.restore(tmp_path / "c", "--topic", old["folder"], "--topic", new["folder"], status=1) == []
    assert place.restore(tmp_path / "c", "--topic", old["folder"], "--as", "orders before") != []
    assert [row["records"] for row in place.restore(tmp_path / "c", "--topic", "orders")] == [2]


def test_backup_has_its_folder_alone_and_goes_on_where_a_killed_one_was(
    place: DataAndBackup, client: quoth.Client, tmp_path: Path
) -> None:
    for number in range(MANY):
        client.publish("orders", b"%d" % number * 500)
    running = place.command.prepared(STOPS_HALF_WAY).start("backup", str(place.data), str(place.to))
    running.wait_until_stopped()
    result = place.command("backup", str(place.data), str(place.to))
    assert result.status == 1
    assert f"quoth: locked: {place.to} is in use by process {running.process.pid}" in result.err
    running.end(signal.SIGKILL)
    result = place.command("restore", str(place.to), str(tmp_path / "restored"))
    assert result.status == 3
    assert "no finished backup, it has no backup.json" in result.err
    assert not (tmp_path / "restored").exists()
    (row,) = place.backup()
    assert 0 < row["copied"] < row["bytes"]
    assert [row["records"] for row in place.restore(tmp_path / "restored")] == [MANY]


def test_backup_on_a_full_disk_fails_and_the_last_one_stays(
    place: DataAndBackup, client: quoth.Client, tmp_path: Path
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


def test_damage_is_reported_and_copied(place: DataAndBackup, source: BrokerProcess, tmp_path: Path) -> None:
    with quoth.connect(source.url) as client:
        client.create_topic("orders", max_bytes=10**9)
        for value in (b"one", b"two", b"three"):
            client.publish("orders", value)
    source.terminate()
    (path,) = segments(next(source.topics_directory.iterdir()))
    flip(path, path.read_bytes().index(b"two"))
    flip(path.with_name("topic.json"), 30)
    result = place.command("backup", str(place.data), str(place.to))
    assert result.status == 1
    assert f"quoth: damaged: {path}: " in result.err
    assert f"quoth: damaged: {path.with_name('topic.json')}: " in result.err
    assert "1 record missing" in result.err
    assert place.command("restore", str(place.to), str(tmp_path / "restored")).status == 0
    dumped = place.command("log", "dump", str(tmp_path / "restored"), "--format", "raw")
    assert (dumped.status, dumped.lines) == (1, ["one", "three"])


def test_backup_does_not_write_through_a_link_or_a_pipe(
    place: DataAndBackup, copied: Path, precious: Path
) -> None:
    for which in ("lock", "backup.json.tmp", "*.seg.tmp"):
        for kind in KINDS:
            place.backup()
            (place.to / "backup.json").unlink()
            (segment,) = place.to.glob("*/*.seg")
            segment.unlink()
            path = segment.with_name(f"{segment.name}.tmp") if which == "*.seg.tmp" else place.to / which
            path.unlink(missing_ok=True)
            put_no_file(path, kind, precious)
            result = place.command("backup", str(place.data), str(place.to), seconds=DEADLINE_S)
            assert (result.status, str(path) in result.err) == (1, True), result
            assert "stands where a file has to be" in result.err
            assert not (place.to / "backup.json").exists()
            path.unlink(missing_ok=True)


MISTYPED: dict[str, tuple[int, str]] = {
    "backup DATA TO --topic nosuch": (3, "unknown_topic: "),
    "backup DATA/nosuch TO": (3, "not_found: "),
    "backup DATA/topics TO": (2, "is no broker's data directory"),
    "backup DATA DATA/backup": (2, "a backup belongs on another disk"),
    "backup DATA OTHER": (2, "holds 'letter.txt', so it is no backup; nothing was changed"),
    "backup DATA TWIN/topics": (2, "so it is no backup; nothing was changed"),
    "backup DATA TO --until 2999-01-01": (2, "is still to come"),
    "backup DATA TO --until soon": (2, "bad_pointer: "),
    "restore OTHER NEW": (3, "no finished backup"),
    "restore nosuch NEW": (3, "no finished backup"),
    "restore TO NEW --topic nosuch": (3, "holds no topic 'nosuch'"),
    "restore TO NEW --as one": (2, "--as is for one topic, these are 2"),
    "restore TO NEW --topic a --as a/b": (2, "bad_topic: "),
    "restore TO NEW --until now": (2, "ends at "),
}


def test_mistyped_command_is_refused_and_changes_nothing(alone: Command, tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker, quoth.connect(broker) as client:
        for topic in ("a", "b"):
            client.publish(topic, b"x")
    for words in (("backup", "data", "to"), ("restore", "to", "twin")):
        assert alone(words[0], str(tmp_path / words[1]), str(tmp_path / words[2])).status == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    for line, (status, said) in MISTYPED.items():
        typed = [
            re.sub(r"^[A-Z]+", lambda name: str(tmp_path / name[0].lower()), one) for one in line.split()
        ]
        assert said in "".join(alone(*typed).refused(status)), line
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()} == before


def test_text_has_amounts_and_the_time(place: DataAndBackup, client: quoth.Client, tmp_path: Path) -> None:
    last = client.publish("orders", [b"x"] * 1_000).last
    result = place.command("backup", str(place.data), str(place.to))
    size = json.loads((place.to / "backup.json").read_text().splitlines()[0])["topics"][0]["segments"][0][
        "bytes"
    ]
    assert result.lines == [
        f"orders: 1,000 records, {size / 1_000:.3g} kB, of which {size / 1_000:.3g} kB are new"
    ]
    assert result.err.startswith(f"quoth: {place.to} holds these topics as they were at 20")
    assert place.backup()[0]["copied"] == 0
    result = place.command("restore", str(place.to), str(tmp_path / "restored"))
    assert result.err == ""
    assert result.lines[0].startswith("orders: 1,000 records up to 20")
    assert place.restore(tmp_path / "again")[0]["last"] == last


def test_reader_that_ends_does_not_end_the_copying(
    place: DataAndBackup, client: quoth.Client, tmp_path: Path
) -> None:
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


# -- restore --------------------------------------------------------------------------------------


def test_restored_topics_are_as_they_were(
    place: DataAndBackup, client: quoth.Client, revive: Revive, tmp_path: Path
) -> None:
    client.create_topic("orders", durability="synced", max_bytes=10**9)
    with client.producer("orders") as producer:
        for number in range(3_000):
            producer.send(b"%d" % number, key=b"k", headers={"n": b"1"})
    client.publish("a.b~c %2F", [b"", b"\0\xff"])
    client.create_topic("empty")
    names = ["a.b~c %2F", "empty", "orders"]
    expected = {name: messages(client, name) for name in names}
    cursor = expected["orders"][1_000].pointer
    rows = place.backup()
    assert [(row["topic"], row["records"], row["damages"]) for row in rows] == [
        ("a.b~c %2F", 2, []), ("empty", 0, []), ("orders", 3_000, []),
    ]  # fmt: skip
    later = client.publish("orders", b"after the backup").last
    result = place.restore(tmp_path / "restored")
    assert [(row["topic"], row["records"]) for row in result] == [
        (row["topic"], row["records"]) for row in rows
    ]
    back = revive(tmp_path / "restored")
    assert back.topics() == names
    assert {name: messages(back, name) for name in names} == expected
    was, found = client.topic("orders"), back.topic("orders")
    assert (found.log, found.settings, found.problem) == (was.log, was.settings, "")
    assert next(iter(back.read("orders", after=cursor))) == expected["orders"][1_001]
    assert back.publish("orders", b"new").first > later
    assert [message.value for message in back.read("orders", after=later)] == [b"new"]


def test_restore_on_a_full_disk_leaves_nothing(
    place: DataAndBackup, client: quoth.Client, tmp_path: Path
) -> None:
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


def test_killed_restore_leaves_no_topic_and_can_be_repeated(
    place: DataAndBackup, client: quoth.Client, tmp_path: Path
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


def test_changed_backup_is_not_restored(place: DataAndBackup, client: quoth.Client, tmp_path: Path) -> None:
    for topic in ("a", "b"):
        client.publish(topic, b"x" * 100)
    place.backup()
    (path,) = place.to.glob("b~*/*.seg")
    flip(path, 150)
    happened, _ = place.command("restore", str(place.to), str(tmp_path / "restored")).refused(1)
    assert happened.startswith("quoth: damaged: ")
    assert not (tmp_path / "restored").exists()
    assert [row["topic"] for row in place.restore(tmp_path / "restored", "--topic", "a")] == ["a"]


def test_restore_does_not_write_through_a_link_or_a_pipe(
    place: DataAndBackup, copied: Path, precious: Path, tmp_path: Path
) -> None:
    new = f"topics/.new~{copied.name.rpartition('~')[2]}"
    for number, (which, kind) in enumerate(product(("lock", new), KINDS)):
        at = tmp_path / f"restored-{number}"
        put_no_file(at / which, kind, precious)
        result = place.command("restore", str(place.to), str(at), seconds=DEADLINE_S)
        assert (result.status, "stands where a" in result.err, str(at / which) in result.err) == (
            1,
            True,
            True,
        )
        assert list(at.glob("topics/*~*")) == [at / which for _ in range(which != "lock")]


def test_restore_removes_the_files_of_an_unfinished_one(
    place: DataAndBackup, copied: Path, precious: Path, tmp_path: Path
) -> None:
    (segment,) = (path.name for path in copied.glob("*.seg"))
    for number, (which, kind) in enumerate(product(("topic.json.tmp", f"{segment}.tmp"), KINDS)):
        at = tmp_path / f"restored-{number}"
        left = at / "topics" / f".new~{copied.name.rpartition('~')[2]}"
        put_no_file(left / which, kind, precious)
        (row,) = place.restore(at)
        assert (row["records"], left.exists()) == (1, False)


def test_restore_overwrites_nothing(
    place: DataAndBackup, client: quoth.Client, source: BrokerProcess
) -> None:
    client.publish("orders", b"x")
    place.backup()
    result = place.command("restore", str(place.to), str(place.data))
    assert (result.status, "quoth: locked: " in result.err) == (1, True)
    source.terminate()
    before = listing(place.data)
    result = place.command("restore", str(place.to), str(place.data))
    assert result.status == 1
    assert "quoth: topic_exists: " in result.err
    assert "nothing was restored" in result.err
    assert listing(place.data) == before
    assert [row["topic"] for row in place.restore(place.data, "--as", "orders then")] == ["orders then"]
    source.restart()
    with quoth.connect(source.url) as again:
        assert again.publish("orders then", b"y").first > again.read("orders")[0].pointer
        again.publish("orders", b"z")
        assert [len(messages(again, topic)) for topic in ("orders", "orders then")] == [2, 2]
