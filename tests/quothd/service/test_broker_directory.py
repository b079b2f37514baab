"""Data directories: their owner, their permissions, and unknown, damaged and missing files in them."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from xxhash import xxh3_64_hexdigest

from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers
from kit.deadlines import eventually
from kit.machine.processes import listing
from quothlog.datadir import topic_file
from quothlog.file_format import LOCK_NAME
from quothwire.errors import QuothError
from quothwire.protocol.messages import ListTopics, Ping, UpdateTopic
from quothwire.settings import TopicSettings

CANNOT = 3
"""The exit status of a broker that cannot start, with a right configuration."""

Refuse = Callable[..., str]


def names(fast: FastPeer) -> list[str]:
    """The names of all topics."""
    found: list[str] = fast.call(ListTopics()).names
    return found


def test_a_directory_has_one_owner(refuse: Refuse, start_broker: StartBroker, peers: Peers) -> None:
    """The second one names the process of the first, which goes on."""
    broker = start_broker()
    said = refuse(CANNOT, directory=broker.directory)
    assert "locked" in said
    assert f"process {broker.pid}" in said
    peers.fast(broker).publish("t", [b"x"])
    assert (broker.directory / LOCK_NAME).read_text().strip() == str(broker.pid)
    (broker.directory / LOCK_NAME).unlink()
    assert "locked" in refuse(CANNOT, directory=broker.directory), "a second one would give out its pointers"


def test_a_lock_file_that_is_a_link_is_not_followed(refuse: Refuse, tmp_path: Path) -> None:
    target, directory = tmp_path / "precious", tmp_path / "data"
    target.write_text("of another program")
    directory.mkdir()
    (directory / LOCK_NAME).symlink_to(target)
    assert "symbolic link" in refuse(CANNOT, directory=directory)
    assert target.read_text() == "of another program"


def test_a_pipe_in_place_of_the_folder_of_a_trial_write_is_refused(refuse: Refuse, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "topics" / ".new~ffffffffffffffff"
    folder.parent.mkdir(parents=True)
    os.mkfifo(folder)
    assert str(folder) in refuse(CANNOT, directory=tmp_path / "data")


def test_a_data_directory_may_be_a_link_and_settings_may_be_a_pipe(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    (tmp_path / "another disk").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "another disk")
    broker = start_broker(directory=tmp_path / "linked")
    fast = peers.fast(broker)
    fast.publish("t", [b"x"])
    fast.close()
    assert broker.terminate() == 0
    (folder,) = (tmp_path / "another disk" / "topics").iterdir()
    (folder / topic_file.NAME).unlink()
    os.mkfifo(folder / topic_file.NAME)
    fast = peers.fast(broker.restart())
    assert "cannot be read" in fast.describe("t").problem
    assert fast.values("t") == [b"x"]


def test_a_link_in_place_of_a_segment_stops_its_topic_and_no_other(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    """The topic goes on once the file is back."""
    broker = start_broker()
    fast = peers.fast(broker)
    for name in ("t", "u"):
        fast.publish(name, [b"x"])
    fast.close()
    assert broker.terminate() == 0
    (path,) = broker.topics_directory.glob("t~*/*.seg")
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    fast = peers.fast(broker.restart())
    fast.publish("u", [b"y"])
    with pytest.raises(QuothError, match=r"storage_failed: .*a symbolic link stands where a file has to be"):
        fast.publish("t", [b"y"])
    fast.close()
    assert broker.terminate() == 0
    (tmp_path / "moved").replace(path)
    fast = peers.fast(broker.restart())
    fast.publish("t", [b"z"])
    assert fast.values("t") == [b"x", b"z"]


def test_a_directory_is_unlocked_by_a_crash_and_by_a_stop(start_broker: StartBroker, peers: Peers) -> None:
    first = start_broker()
    peers.fast(first).publish("t", [b"1"])
    first.kill()
    second = start_broker()
    peers.fast(second).publish("t", [b"2"])
    assert second.terminate() == 0
    third = start_broker()
    assert peers.fast(third).values("t") == [b"1", b"2"]


@pytest.mark.parametrize("place", ["a file", "below a file", "a file as topics"])
def test_a_file_in_place_of_a_directory_is_refused(refuse: Refuse, tmp_path: Path, place: str) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    match place:
        case "a file":
            directory = file
        case "below a file":
            directory = file / "data"
        case _:
            directory = tmp_path / "data"
            directory.mkdir()
            (directory / "topics").write_text("x")
    assert str(tmp_path) in refuse(CANNOT, directory=directory)
    assert file.read_text() == "x"


def drop_override() -> None:
    """Give up the right of root to write everywhere, from the next exec on."""
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP of CAP_DAC_OVERRIDE


@pytest.mark.skipif(
    os.getuid() == 0 and sys.platform != "linux", reason="root may write everywhere on this system"
)
def test_a_directory_that_is_not_writable_is_refused(refuse: Refuse, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    popen = {"preexec_fn": drop_override} if os.getuid() == 0 else {}
    said = refuse(CANNOT, directory=closed / "data", popen=popen)
    assert "Permission denied" in said
    said = refuse(CANNOT, directory=closed, popen=popen)
    assert "Permission denied" in said
    assert listing(closed) == []


def test_a_new_directory_is_for_its_owner_alone(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker(worker_timeout=60)  # no file comes and goes meanwhile
    peers.fast(broker).publish("t", [b"x"])
    for path in [broker.directory, *broker.directory.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


# -- unknown and damaged files --------------------------------------------------------------------------

UNKNOWN = (".DS_Store", "lost+found/", "notes.txt", "t", "t~", "t~xyz", "~", "t~0123456789ABCDEF", "a~b~c/",
          "t~0123456789abcdef")  # fmt: skip


def test_unknown_files_among_topics_are_logged_and_not_touched(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker()
    fast = peers.fast(broker)
    fast.publish("real", [b"x"])
    assert broker.terminate() == 0
    for name in UNKNOWN:
        path = broker.topics_directory / name
        if name.endswith("/"):
            path.mkdir()
            (path / "inside").write_text("x")
        else:
            path.write_text("x")
    (broker.topics_directory / "link~0123456789abcdee").symlink_to(broker.directory)
    (broker.directory / "stray").write_text("x")
    before = listing(broker.directory)
    fast.close()
    fast = peers.fast(broker.restart())
    assert names(fast) == ["real"]
    assert fast.values("real") == [b"x"]
    for name in (*UNKNOWN, "link~0123456789abcdee"):
        assert f"file={name.rstrip('/')}" in broker.stderr
    assert broker.terminate() == 0
    assert set(before) <= set(listing(broker.directory))


def test_unknown_files_in_a_topic_are_logged_and_not_touched(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker()
    fast = peers.fast(broker)
    fast.publish("t", [b"x"])
    assert broker.terminate() == 0
    (folder,) = broker.topics_directory.iterdir()
    (folder / "core").write_text("x")
    (folder / "backup").mkdir()
    (folder / "backup" / "00000000000000001.seg").write_text("x")
    (folder / "0001.seg").write_text("x")
    (folder / "99999999999999999.seg").write_text("not a segment of 56 bits")
    fast.close()
    fast = peers.fast(broker.restart())
    assert fast.values("t") == [b"x"]
    fast.publish("t", [b"y"])
    for name in ("core", "0001.seg"):
        broker.wait_for(f"topic=t file={name}")
    assert (folder / "core").read_text() == "x"
    assert (folder / "backup").is_dir()


def test_a_topic_half_made_or_half_deleted_is_removed(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker()
    fast = peers.fast(broker)
    fast.publish("t", [b"x"])
    fast.publish("gone", [b"x"])
    assert broker.terminate() == 0
    for path in broker.topics_directory.iterdir():
        if path.name.startswith("gone~"):
            path.rename(path.with_name(f".gone~{path.name.rpartition('~')[2]}"))
    half = broker.topics_directory / ".new~00000000000000ff"
    half.mkdir()
    (half / topic_file.NAME).write_text("half")
    fast.close()
    fast = peers.fast(broker.restart())
    assert names(fast) == ["t"]
    assert [path.name.partition("~")[0] for path in broker.topics_directory.iterdir()] == ["t"]


MAX_AGE_S = 0.4

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "cut": lambda whole: whole[:-5],
    "a changed number": lambda whole: whole.replace(b'"max_age": 0.4', b'"max_age": 0.1'),
    "noise": lambda whole: bytes(range(256)),
    "zeros": lambda whole: bytes(len(whole)),
    "a bad name": lambda whole: topic_file.encode(replace(topic_file.decode(whole), name="a/b")),
    "a name that is none": lambda whole: checked(re.sub(rb'"name": "[^"]*"', b'"name": 17', whole)),
    "another version": lambda whole: checked(whole.replace(b'"version": 1', b'"version": 9')),
    "no map": lambda whole: checked(b"[]"),
    "no settings": lambda whole: checked(whole.replace(b'"settings"', b'"setting"')),
    "a setting from the future": lambda whole: checked(whole.replace(b'"max_age"', b'"max_love"')),
    "settings of a wrong type": lambda whole: checked(whole.replace(b"0.4", b'"long"')),
    "an id of a wrong type": lambda whole: checked(re.sub(rb'"log": \d+', b'"log": "x"', whole)),
}


def checked(whole: bytes) -> bytes:
    """Return a settings file with the right checksum."""
    line = whole.partition(b"\n")[0]
    return line + b"\n" + xxh3_64_hexdigest(line).encode() + b"\n"


def test_damaged_settings_delete_nothing(start_broker: StartBroker, peers: Peers) -> None:
    """The topic is served without retention, its description has the problem, an update repairs it."""
    broker = start_broker(worker_timeout=0.05, check_interval=0.05)
    fast = peers.fast(broker)
    for name in DAMAGES:
        fast.publish(name, [b"x"])
    broker.kill()
    for folder in broker.topics_directory.iterdir():
        file = folder / topic_file.NAME
        topic = topic_file.decode(file.read_bytes())
        whole = topic_file.encode(replace(topic, settings=TopicSettings(max_age=MAX_AGE_S)))
        file.write_bytes(DAMAGES[topic.name](whole))
    fast.close()
    fast = peers.fast(broker.restart())
    assert names(fast) == sorted(DAMAGES)
    pointers = {}
    for name in DAMAGES:
        reply = fast.publish(name, [b"y"])
        assert reply.durability == "synced", "the level that cannot promise too little"
        pointers[name] = reply.first
        info = fast.describe(name)
        assert info.problem, name
        assert info.settings["max_age"] == 0.0
    due = max(pointers.values()) + 1_200_000 * MAX_AGE_S
    eventually(lambda: fast.call(Ping()).time > due, "every record is older than its topic allowed")
    for name in DAMAGES:
        assert fast.values(name) == [b"x", b"y"]
        info = fast.call(UpdateTopic({"durability": "written", "max_age": 100.0}), name)
        assert (info.problem, info.settings["max_age"]) == ("", 100.0)
    assert broker.terminate() == 0
    fast.close()
    fast = peers.fast(broker.restart())
    for name in DAMAGES:
        assert (fast.describe(name).problem, fast.describe(name).settings["max_age"]) == ("", 100.0)
        assert len(fast.read_all(name)) == 2


def test_missing_settings_delete_nothing(start_broker: StartBroker, peers: Peers) -> None:
    """A folder without its settings file is a topic by its name."""
    broker = start_broker()
    fast = peers.fast(broker)
    name = "größe / nicht".replace("/", "~") + " 😀"
    fast.publish(name, [b"x"])
    broker.kill()
    (folder,) = broker.topics_directory.iterdir()
    (folder / topic_file.NAME).unlink()
    fast.close()
    fast = peers.fast(broker.restart())
    assert names(fast) == [name]
    assert fast.values(name) == [b"x"]
    assert "cannot be read" in fast.describe(name).problem


def test_a_copied_folder_is_another_topic(start_broker: StartBroker, peers: Peers) -> None:
    """Two folders with the same name in their settings are both served."""
    originals = ["t", "x" * 200, "€" * 66, "😀" * 50]
    broker = start_broker()
    fast = peers.fast(broker)
    for name in originals:
        fast.publish(name, [name.encode()])
    assert broker.terminate() == 0
    for folder in list(broker.topics_directory.iterdir()):
        copy = folder.with_name(folder.name.rpartition("~")[0] + "~" + "f" * 16)
        shutil.copytree(folder, copy)
    fast.close()
    fast = peers.fast(broker.restart())
    copies = set(names(fast)) - set(originals)
    assert len(copies) == len(originals)
    for name in originals:
        assert fast.values(name) == [name.encode()]
    for name in copies:
        assert "another log" in fast.describe(name).problem
        assert len(fast.read_all(name)) == 1
