"""A directory that holds something else is refused by name: nothing is built in it, and nothing is read."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import quoth
from kit.broker.brokers import StartBroker
from quothlog import Log, Reader, Writer
from quothlog.slabs import SlabWriter
from quothwire.errors import RequestError

Making = Callable[[Path], object]


def slabs(directory: Path) -> None:
    with SlabWriter(directory) as writer:
        writer.write(b"value")


def files(*names: str) -> Making:
    def make(directory: Path) -> None:
        for name in names:
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")

    return make


OTHERS = [
    pytest.param(slabs, "slabs of queuefka", id="queuefka"),
    pytest.param(files("a_data", "a_index", "a_lock"), "a segment of appendix", id="appendix"),
    pytest.param(files("topics/the_topic/1795405462838664_data"), "the data of Poe", id="poe"),
    pytest.param(files("backup.json", "topics/x"), "a backup", id="backup"),
    pytest.param(files("b", "a"), "'a' and 1 more", id="anything"),
    pytest.param(files("below/file"), "'below'", id="folder"),
]
EXPECTED = ("lock", "name.forward", "name.forward.lock", ".hidden", "lost+found/x", "topic.json", "groups/x")


@pytest.mark.parametrize(("make", "what"), OTHERS)
def test_what_is_there_is_named_and_stays_as_it_is(make: Making, what: str, directory: Path) -> None:
    make(directory)
    before = sorted(directory.rglob("*"))
    for opened in (Log.open, Writer, Reader):
        with pytest.raises(RequestError, match=f"bad_setting: .*: it holds {what}"):
            opened(directory)
    assert sorted(directory.rglob("*")) == before


def test_the_data_of_a_broker_is_named(start_broker: StartBroker, directory: Path) -> None:
    broker = start_broker(directory=directory)
    with quoth.connect(broker.url) as client:
        client.publish("orders", b"x")
    for opened in (Log.open, Reader):
        with pytest.raises(RequestError, match="it holds the data of a broker of Quoth"):
            opened(directory)


def test_what_belongs_to_a_log_is_no_reason(directory: Path) -> None:
    files(*EXPECTED)(directory)
    with socket.socket(socket.AF_UNIX) as hidden:
        hidden.bind(str(directory / ".socket"))
    assert Reader(directory).read() == []
    with Log.open(directory) as log:
        log.append(b"value")
    (directory / "notes").write_text("of a user")
    with Log.open(directory) as log:
        assert log.findings.unknown_files == [".hidden", "notes", "topic.json"]
        assert [one.value for one in Reader(directory).read()] == [b"value"]


def test_names_of_the_caller_are_no_reason(directory: Path) -> None:
    files("mine")(directory)
    with Log.open(directory, others=("mine",)) as log:
        assert log.findings.unknown_files == []


def test_a_log_that_is_known_by_its_id_begins_anew_beside_unknown_files(directory: Path) -> None:
    """As a broker does, whose folder it is."""
    files("notes")(directory)
    with Log.open(directory, log_id=7) as log:
        assert log.findings.unknown_files == ["notes"]
