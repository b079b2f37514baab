"""`quoth restore`: into a new directory, killed, on a full disk, from a changed backup."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable
from itertools import product
from pathlib import Path

import quoth
from kit.broker.brokers import BrokerProcess
from kit.deadlines import DEADLINE_S
from kit.disk.backups import KINDS, MANY, STOPS_HALF_WAY, DataAndBackup, everything, put_no_file
from kit.disk.damage import flip
from kit.machine.processes import listing

Revive = Callable[[Path], quoth.Client]


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
        told = place.command("restore", str(place.to), str(at), seconds=DEADLINE_S)
        assert (told.status, "stands where a" in told.err, str(at / which) in told.err) == (1, True, True)
        assert list(at.glob("topics/*~*")) == [at / which for _ in range(which != "lock")]


def test_restore_clears_away_what_an_unfinished_one_has_left(
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
