"""Small parts of the broker: the table of a topic's states, pending fetches, folders, files, error codes."""

from __future__ import annotations

import errno
import math
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import pytest

from kit.broker.peers import refused
from kit.disk.doubles import SyncedBy
from quothd.access.access import Access
from quothd.config.config import Config
from quothd.connections.connection import unwatched
from quothd.datadir import catalog
from quothd.frontend.schedule import PendingFetches
from quothd.frontend.topic_states import TABLE, State, Transition, follow
from quothd.requests.pending_request import PendingRequest, Responder
from quothd.topics.failures import as_error, broken_off
from quothlog.datadir import topic_file, topic_folder
from quothlog.datadir.topic_file import TopicFile
from quothlog.datadir.topic_folder import TopicFolder
from quothlog.storage.filesystem import NotDurable, PosixFileSystem
from quothwire.errors import error
from quothwire.protocol.messages import Operation
from quothwire.settings import Durability, TopicSettings
from quothwire.topic import TOPIC_BYTES_MAX

# -- the states of a topic --------------------------------------------------------------------------------

ACTIVE = {State.OPENING, State.OPEN, State.CLOSING}
"""The states in which a topic has a worker."""


def test_every_state_of_a_topic_leads_to_active_and_to_hibernating() -> None:
    """A transition that the table lacks is a defect."""
    assert reached_from(State.HIBERNATING) == set(State)
    for state, transition in product(State, Transition):
        if (state, transition) not in TABLE:
            with pytest.raises(AssertionError, match=transition.name):
                follow(state, transition)
    for state in set(State) - {State.GONE}:
        assert State.HIBERNATING in reached_from(state)
        assert follow(state, Transition.NEEDED) in ACTIVE | {State.QUEUED}
    for state in ACTIVE:
        assert follow(state, Transition.FAILED) not in ACTIVE
    assert not any(state is State.GONE for state, _ in TABLE)


def reached_from(start: State) -> set[State]:
    """The states to which transitions lead from a state, itself included."""
    reached = {start}
    while more := {to for (state, _), to in TABLE.items() if state in reached} - reached:
        reached |= more
    return reached


MOST = 100_000
"""Fetches that may wait."""
LEVELS: tuple[Durability | None, ...] = (None, "synced")
"""What a fetch waits for: anything that its topic shows, or a synced record."""

# -- pending fetches ----------------------------------------------------------------------------------------


def fetch(topic: str, after: int, deadline: float, durability: Durability | None = None) -> PendingRequest:
    places = cast(Responder, None), Operation.FETCH, topic, 0, unwatched()
    return PendingRequest(*places, after=after, deadline=deadline, durability=durability)


def test_pending_fetches_are_taken_once_in_order(rng: random.Random) -> None:
    """By a publish, a deadline or the end of a topic, as of a model that is a list."""
    pending, model = PendingFetches(Access(Config())), list[PendingRequest]()
    now = 0.0
    for _ in range(5_000):
        topic = rng.choice("abc")
        match rng.randrange(6):
            case 0 | 1 | 2:
                deadline, level = now + rng.choice((0.0, 5.0, 50.0, 5_000.0)), rng.choice(LEVELS)
                model.append(fetch(topic, rng.randrange(20), deadline, level))
                pending.add(model[-1], Config())
                continue
            case 3:
                ends, most = (rng.randrange(20), rng.randrange(20)), rng.choice((0, 1, 5, 1_000))
                expected = []
                for level, end in zip(LEVELS, ends, strict=True):
                    mine = [one for one in model if (one.topic, one.durability) == (topic, level)]
                    expected += sorted((one for one in mine if one.after < end), key=lambda one: one.after)
                found = pending.take_ready(topic, *ends, most)
                assert found == expected[:most]
            case 4:
                now += rng.random() * 10
                expected = [one for one in model if one.deadline <= now]
                found = pending.take_expired(now)
                assert set(found) == set(expected)
            case _:
                if rng.random() < 0.9:
                    continue
                expected = [one for one in model if one.topic == topic]
                found = pending.take_all(topic)
                assert found == expected
        model = [one for one in model if one not in found]
        assert len(pending) == len(model)
        assert pending.next_due() <= min((one.deadline for one in model), default=math.inf)
    assert set(pending.take_all()) == set(model)
    assert len(pending) == 0


def test_taken_fetches_leave_no_memory_behind() -> None:
    """A tailing reader is pending again and again, with deadlines far away."""
    pending = PendingFetches(Access(Config()))
    pending.add(fetch("t", 2**50, 1e9), Config())
    for i in range(10_000):
        pending.add(fetch("t", i, 1e9), Config())
        assert len(pending.take_ready("t", i + 1, 0, 10)) == 1
    assert len(pending._deadlines._rows) < 100
    assert len(pending._by_topic["t"]._rows) < 100
    for one in pending.take_all("t"):
        assert one.after == 2**50
    assert pending._by_topic == {}


def test_the_cost_of_a_publish_does_not_grow_with_fetches_behind_it() -> None:
    """Its cost is the same for any number of readers that wait for later records."""
    pending = PendingFetches(Access(Config()))
    for i in range(1_000):
        pending.add(fetch("t", 2**50 + i, 1e9), Config())
    (rows,) = (order._rows for order in pending._by_topic.values())
    looked = Looked(rows)
    pending._by_topic["t"]._rows = looked
    for i in range(1_000):
        assert pending.take_ready("t", i, i, 10) == []
    assert looked.times <= 3_000


class Looked(list[tuple[float, int, PendingRequest]]):
    """A list that counts the accesses to its elements."""

    times = 0

    def __getitem__(self, at: Any) -> Any:
        self.times += 1
        return super().__getitem__(at)

    def __iter__(self) -> Iterator[tuple[float, int, PendingRequest]]:
        self.times += len(self)
        return super().__iter__()


# -- folders and files ----------------------------------------------------------------------------------


NAMES = [
    *("t", "a b", "größe", "😀" * 50, "x" * 200, "CON", ".hidden", "...", "%2E", "a~b", "~", "$x;`y`"),
    "\u200b",
]


def test_a_slug_is_a_printable_file_name() -> None:
    """A slug can be decoded unless it had to be cut: then the log's id distinguishes the folders."""
    whole = {}
    for name in NAMES:
        slug = topic_folder.slug(name)
        assert re.fullmatch(r"(?!\.)[ -.0-~]{1,238}", slug), slug
        if len(slug) < 200:
            whole[slug] = name
            assert unquote(slug) == name
    assert len(whole) == sum(len(topic_folder.slug(name)) < 200 for name in NAMES)


class NameNotDurable(PosixFileSystem):
    """Refuses to sync the folder of topics once a topic's folder has its name."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def open_directory(self, path: Path) -> SyncedBy:
        return SyncedBy(lambda: self._sync(path))

    def _sync(self, path: Path) -> None:
        self.synced.append(path.name)
        if path.name == "topics" and "topic.json" in {one.name for one in path.glob("t~*/*")}:
            raise OSError(errno.EIO, "no sync")


def test_a_folder_whose_name_is_not_durable_is_not_made(tmp_path: Path) -> None:
    """A power cut could take the topic. A start syncs the folders that it finds."""
    catalog.scan(tmp_path)
    with pytest.raises(NotDurable, match="no sync"):
        catalog.make(tmp_path, TopicFile("t", 5, TopicSettings()), filesystem=NameNotDurable())
    assert list((tmp_path / "topics").iterdir()) == []
    disk = NameNotDurable()
    assert catalog.scan(tmp_path, disk).folders == []
    assert "topics" in disk.synced


def test_a_scan_finds_a_topic_as_it_was_made_or_saved_last(tmp_path: Path) -> None:
    """And no topic that was retired."""
    (tmp_path / "topics").mkdir()
    for name in NAMES:
        topic = TopicFile(name, 2**63 - 7, TopicSettings(max_age=5.0))
        path = catalog.make(tmp_path, topic)
        assert catalog.scan(tmp_path).folders == [TopicFolder(path, topic)]
        changed = replace(topic, settings=TopicSettings("synced", 1e10, 2**56, 1, 2**40, 0.001))
        catalog.save(path, changed)
        assert catalog.scan(tmp_path).folders == [TopicFolder(path, changed)]
        gone = catalog.retire(path)
        assert gone.name.startswith(".gone~")
        found = catalog.scan(tmp_path)
        assert (found.folders, found.unknown) == ([], [])
        assert not gone.exists()


def test_the_names_of_copies_are_unique_and_valid(tmp_path: Path) -> None:
    (tmp_path / "topics").mkdir()
    for name in NAMES:
        for log_id in (1, 2, 3):
            catalog.make(tmp_path, TopicFile(name, log_id, TopicSettings()))
    found = [folder.topic.name for folder in catalog.scan(tmp_path).folders]
    assert len(found) == len(set(found)) == 3 * len(NAMES)
    assert max(len(name.encode()) for name in found) <= TOPIC_BYTES_MAX


FILE = topic_file.encode(TopicFile("größe", 2**64 - 1, TopicSettings(max_age=1.5, max_bytes=7)))


def test_a_settings_file_with_any_damage_is_refused() -> None:
    """Each byte changed, the file cut off there, or bytes behind its end."""
    for i in range(len(FILE)):
        for wrong in (FILE[:i], FILE[:i] + bytes([FILE[i] ^ 1]) + FILE[i + 1 :]):
            with refused("damaged"):
                topic_file.decode(wrong)
    for tail in (b"\n", b"x", FILE):
        with refused("damaged"):
            topic_file.decode(FILE + tail)


def test_the_settings_of_the_largest_topic_fit_into_the_file() -> None:
    """No more than `BYTES_MAX` bytes of it are read."""
    longest = TopicFile("\x7e" * 200, 2**64 - 1, TopicSettings("synced", 1e10, 2**56, 2**40, 2**40, 1e10))
    assert len(topic_file.encode(longest)) < topic_file.BYTES_MAX


# -- errors ---------------------------------------------------------------------------------------------


PROBLEMS: list[tuple[Exception, str]] = [
    *((OSError(number, "full"), "disk_low") for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
    *((OSError(number, "short"), "busy") for number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)),
    (OSError(errno.EIO, "broken"), "storage_failed"),
    (OSError("broken"), "storage_failed"),
    (error("bad_setting", "wrong"), "bad_setting"),
    (RuntimeError("a defect"), "internal"),
]


def test_a_problem_has_one_code_and_is_retryable_if_it_passes() -> None:
    """A request that was broken off in the middle is not."""
    for problem, code in PROBLEMS:
        found = as_error(problem, "t", Path("data"))
        assert found.code == code
        assert found.retryable == (code in {"disk_low", "busy"})
        assert any(word in found.text for word in ("full", "short", "broken", "wrong", "a defect"))
        assert ("data: " in found.text) == (code == "storage_failed"), "it names the path"
        assert not broken_off(found).retryable
