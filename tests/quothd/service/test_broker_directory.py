"""Data directories: their owner, their permissions, and unknown, damaged and missing files in them."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_hexdigest

from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers
from kit.deadlines import eventually
from kit.disk.doubles import FaultyDisk, Kind
from kit.machine.processes import listing
from quothd import Broker
from quothlog.datadir import topic_file
from quothlog.file_format import LOCK_NAME
from quothwire.errors import QuothError
from quothwire.protocol.messages import ListTopics, Ping, UpdateTopic
from quothwire.settings import TopicSettings

CANNOT = 3
"""The exit status of a broker that cannot start, with a right configuration."""

Refuse = Callable[..., str]


@contextmanager
def serving(directory: Path, **settings: Any) -> Iterator[FastPeer]:
    """Run a broker in this process during the block; gives a client."""
    with Broker(directory, **settings) as broker, FastPeer(broker.context, broker.url) as fast:
        yield fast


def names(fast: FastPeer) -> list[str]:
    found: list[str] = fast.call(ListTopics()).names
    return found


def test_a_directory_has_one_owner(refuse: Refuse, start_broker: StartBroker, peers: Peers) -> None:
    """The second one names the process of the first, which goes on. A crash or a stop leaves no lock."""
    broker = start_broker()
    said = refuse(CANNOT, directory=broker.directory)
    assert "locked" in said
    assert f"process {broker.pid}" in said
    peers.fast(broker).publish("t", [b"1"])
    assert (broker.directory / LOCK_NAME).read_text().strip() == str(broker.pid)
    (broker.directory / LOCK_NAME).unlink()
    assert "locked" in refuse(CANNOT, directory=broker.directory), "a second one would give out its pointers"
    broker.kill()
    second = start_broker()
    peers.fast(second).publish("t", [b"2"])
    assert second.terminate() == 0
    with serving(broker.directory) as fast:
        assert fast.values("t") == [b"1", b"2"]


PLACES = {
    "data": "a file",
    "data/topics": "a file",
    f"data/{LOCK_NAME}": "a link",
    "data/topics/.new~ffffffffffffffff": "a pipe",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_file_in_place_of_a_directory_is_refused_and_left_alone(tmp_path: Path, place: str) -> None:
    """Links and pipes are left alone, too."""
    path, precious = tmp_path / place, tmp_path / "precious"
    path.parent.mkdir(parents=True, exist_ok=True)
    precious.write_text("of another program")
    match PLACES[place]:
        case "a file":
            shutil.copy(precious, path)
        case "a link":
            path.symlink_to(precious)
        case _:
            os.mkfifo(path)
    before = listing(tmp_path)
    for directory in (tmp_path / "data", *([path / "below"] if place == "data" else [])):
        with pytest.raises((QuothError, OSError), match=re.escape(str(tmp_path))):
            Broker(directory).start()
    assert set(before) <= set(listing(tmp_path))
    assert precious.read_text() == "of another program"
    assert path.is_fifo() or path.read_text() == "of another program"


def test_a_directory_that_takes_no_files_is_refused_at_the_start(tmp_path: Path, disk: FaultyDisk) -> None:
    """All that a publish needs is tried, and leaves nothing."""
    changes: tuple[Kind, ...] = ("create", "write", "sync", "rename")
    for kind in changes:
        disk.fail(kind, problem=errno.EROFS, lasting=True)
        with pytest.raises(QuothError, match=f"storage_failed: {tmp_path}.* Read-only file system") as caught:
            Broker(tmp_path, filesystem=disk).start()
        assert "mounted read-only" in str(caught.value.hint), "what to do"
        disk.heal()
        assert listing(tmp_path / "topics") == []
    with Broker(tmp_path, filesystem=disk) as broker:
        assert broker.url


def test_a_new_directory_is_for_its_owner_alone_and_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(tmp_path / "another disk")
    (tmp_path / "another disk").mkdir(mode=0o700)
    with serving(tmp_path / "linked", worker_timeout=60) as fast:  # no file comes and goes meanwhile
        fast.publish("t", [b"x"])
        for path in (tmp_path / "another disk").rglob("*"):
            assert path.stat().st_mode & 0o077 == 0, path


# -- unknown and damaged files --------------------------------------------------------------------------

UNKNOWN = (".DS_Store", "lost+found/", "notes.txt", "t", "t~", "t~xyz", "~", "t~0123456789ABCDEF", "a~b~c/",
          "t~0123456789abcdef")  # fmt: skip
UNKNOWN_IN_A_TOPIC = ("core", "backup/", "0001.seg", "99999999999999999.seg")


def put(path: Path, names: tuple[str, ...]) -> None:
    """Make files, and folders with a file inside."""
    for name in names:
        if name.endswith("/"):
            (path / name).mkdir()
            (path / name / "00000000000000001.seg").write_text("x")
        else:
            (path / name).write_text("x")


def contents(directory: Path) -> dict[str, bytes]:
    """Everything below a directory with the bytes of files, b"" for the rest."""
    found = {path: directory / path for path in listing(directory)}
    return {path: one.read_bytes() if one.is_file() else b"" for path, one in found.items()}


def test_unknown_files_are_logged_and_not_touched(start_broker: StartBroker, peers: Peers) -> None:
    """Neither among topics nor in a topic. A topic half made or half deleted is removed."""
    broker = start_broker()
    fast = peers.fast(broker)
    for name in ("real", "gone"):
        fast.publish(name, [b"x"])
    fast.close()
    assert broker.terminate() == 0
    topics = broker.topics_directory
    (real,), (gone,) = topics.glob("real~*"), topics.glob("gone~*")
    gone.rename(gone.with_name(f".gone~{gone.name.rpartition('~')[2]}"))
    put(topics, UNKNOWN)
    put(real, UNKNOWN_IN_A_TOPIC)
    (topics / "link~0123456789abcdee").symlink_to(broker.directory)
    (broker.directory / "unknown").write_text("x")
    before = contents(broker.directory)
    half = topics / ".new~00000000000000ff"
    half.mkdir()
    (half / topic_file.NAME).write_text("half")
    fast = peers.fast(broker.restart())
    assert names(fast) == ["real"]
    assert fast.values("real") == [b"x"]
    fast.publish("real", [b"y"])
    for name in (*UNKNOWN, "link~0123456789abcdee"):
        assert f"file={name.rstrip('/')}" in broker.stderr
    for name in ("core", "0001.seg"):
        broker.wait_for(f"topic=real file={name}")
    assert broker.terminate() == 0
    after = contents(broker.directory)
    unknown = {path: content for path, content in before.items() if content == b"x"}
    assert len(unknown) == 15
    assert unknown.items() <= after.items()
    assert {path for path in before if UNKNOWN_IN_A_TOPIC[-1] not in path and ".gone~" not in path} <= {
        *after
    }
    assert not [path for path in after if path.startswith("topics/.") and "DS_Store" not in path]


MAX_AGE_S = 0.4

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "cut": lambda whole: whole[:-5],
    "a changed number": lambda whole: whole.replace(b'"max_age": 0.4', b'"max_age": 0.1'),
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


def test_damaged_settings_delete_nothing(tmp_path: Path) -> None:
    """The topic is served without retention, its description has the problem, an update repairs it."""
    with serving(tmp_path) as fast:
        for name in DAMAGES:
            fast.publish(name, [b"x"])
    for folder in (tmp_path / "topics").iterdir():
        file = folder / topic_file.NAME
        topic = topic_file.decode(file.read_bytes())
        whole = topic_file.encode(replace(topic, settings=TopicSettings(max_age=MAX_AGE_S)))
        file.write_bytes(DAMAGES[topic.name](whole))
    with serving(tmp_path, worker_timeout=0.05, check_interval=0.05) as fast:
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
    with serving(tmp_path) as fast:
        for name in DAMAGES:
            assert (fast.describe(name).problem, fast.describe(name).settings["max_age"]) == ("", 100.0)
            assert len(fast.read_all(name)) == 2


def test_a_folder_without_settings_is_a_topic_by_its_name(tmp_path: Path) -> None:
    """Also if a pipe stands in their place."""
    name = "größe ~ nicht 😀"
    with serving(tmp_path) as fast:
        fast.publish(name, [b"x"])
    (folder,) = (tmp_path / "topics").iterdir()
    (folder / topic_file.NAME).unlink()
    for _ in range(2):
        with serving(tmp_path) as fast:
            assert names(fast) == [name]
            assert fast.values(name) == [b"x"]
            assert "cannot be read" in fast.describe(name).problem
        if not (folder / topic_file.NAME).exists():
            os.mkfifo(folder / topic_file.NAME)


def test_a_copied_folder_is_another_topic(tmp_path: Path) -> None:
    """Two folders with the same name in their settings are both served."""
    originals = ["t", "x" * 200, "€" * 66, "😀" * 50]
    with serving(tmp_path) as fast:
        for name in originals:
            fast.publish(name, [name.encode()])
    for folder in list((tmp_path / "topics").iterdir()):
        shutil.copytree(folder, folder.with_name(folder.name.rpartition("~")[0] + "~" + "f" * 16))
    with serving(tmp_path) as fast:
        copies = set(names(fast)) - set(originals)
        assert len(copies) == len(originals)
        for name in originals:
            assert fast.values(name) == [name.encode()]
        for name in copies:
            assert "another log" in fast.describe(name).problem
            assert len(fast.read_all(name)) == 1
