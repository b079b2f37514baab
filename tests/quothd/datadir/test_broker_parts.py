"""The small parts of the broker by themselves: the table of a topic's life, waits, folders, files, errors."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import pytest

from kit.broker.peers import refused
from kit.disk.doubles import SyncedBy
from quothd.datadir import catalog
from quothd.frontend.lifecycle import TABLE, State, Transition, follow
from quothd.frontend.pending_fetches import PendingFetches
from quothd.requests.pending_request import PendingRequest, Responder
from quothd.topics.failures import as_error, broken_off
from quothlog.datadir import topic_file, topic_folder
from quothlog.datadir.topic_file import TopicFile
from quothlog.datadir.topic_folder import TopicFolder
from quothlog.storage.filesystem import NotDurable, PosixFileSystem
from quothwire.errors import error
from quothwire.protocol.messages import Operation
from quothwire.settings import TopicSettings
from quothwire.topic import TOPIC_BYTES_MAX

# -- the life of a topic --------------------------------------------------------------------------------

ACTIVE = {State.OPENING, State.OPEN, State.CLOSING}
"""The states in which a topic has a worker."""


@pytest.mark.parametrize(("state", "happening"), list(product(State, Transition)))
def test_whatever_is_not_in_the_table_cannot_happen(state: State, happening: Transition) -> None:
    """Every state and every happening: a row of the table, or a defect that says so."""
    if (state, happening) in TABLE:
        assert follow(state, happening) is TABLE[state, happening]
    else:
        with pytest.raises(AssertionError, match=happening.name):
            follow(state, happening)


def test_every_life_can_end_and_every_state_is_reached() -> None:
    """From asleep every other state can be reached, and from each of them sleep, or the end."""
    assert reached_from(State.HIBERNATING) == set(State)
    for state in State:
        assert State.HIBERNATING in reached_from(state) or state is State.GONE
    assert not any(state is State.GONE for state, _ in TABLE)


def test_a_worker_that_fails_is_always_got_rid_of() -> None:
    """Wherever there is a worker it may fail, and then there is none."""
    for state in ACTIVE:
        assert follow(state, Transition.FAILED) not in ACTIVE


def test_a_topic_that_is_needed_is_never_lost() -> None:
    """In every state but the last, and it leads to a worker or stays on the way to one."""
    for state in set(State) - {State.GONE}:
        assert follow(state, Transition.NEEDED) in ACTIVE | {State.QUEUED}


def reached_from(start: State) -> set[State]:
    """The states that some happenings lead to, this one included."""
    reached = {start}
    while more := {to for (state, _), to in TABLE.items() if state in reached} - reached:
        reached |= more
    return reached


# -- waits ----------------------------------------------------------------------------------------------


def job(topic: str, after: int, deadline: float) -> PendingRequest:
    """A fetch that waits."""
    return PendingRequest(cast(Responder, None), Operation.FETCH, topic, 0, after=after, deadline=deadline)


def test_waits_are_a_list(rng: random.Random) -> None:
    """Held against the plainest model: every job is told once, for the right reason, in the right order."""
    waits, model = PendingFetches(), list[PendingRequest]()
    now = 0.0
    for _ in range(5_000):
        topic = rng.choice("abc")
        match rng.randrange(6):
            case 0 | 1 | 2:
                model.append(job(topic, rng.randrange(20), now + rng.choice((0.0, 5.0, 50.0, 5_000.0))))
                waits.add(model[-1])
                continue
            case 3:
                newest, most = rng.randrange(20), rng.choice((0, 1, 5, 1_000))
                behind = [one for one in model if one.topic == topic and one.after < newest]
                expected = sorted(behind, key=lambda one: one.after)[:most]
                found = waits.take_ready(topic, newest, most)
                assert found == expected
            case 4:
                now += rng.random() * 10
                expected = [one for one in model if one.deadline <= now]
                found = waits.take_expired(now)
                assert set(found) == set(expected)
            case _:
                if rng.random() < 0.9:
                    continue
                expected = [one for one in model if one.topic == topic]
                found = waits.take_topic(topic)
                assert found == expected
        model = [one for one in model if one not in found]
        assert len(waits) == len(model)
        deadline = waits.next_deadline()
        if model:
            assert deadline is not None
            assert deadline <= min(one.deadline for one in model)
    assert set(waits.take_all()) == set(model)
    assert len(waits) == 0


def test_waits_that_ended_are_forgotten() -> None:
    """A tailing reader parks again and again, with deadlines far away: that must not gather."""
    waits = PendingFetches()
    waits.add(job("t", 2**50, 1e9))
    for i in range(100_000):
        waits.add(job("t", i, 1e9))
        assert len(waits.take_ready("t", i + 1, 10)) == 1
    assert len(waits._deadlines) < 100
    assert len(waits._by_topic["t"]) < 100
    for one in waits.take_topic("t"):
        assert one.after == 2**50
    assert waits._by_topic == {}


def test_waits_for_something_else_are_not_looked_at() -> None:
    """A publish costs the same however many readers wait for what comes long after it."""
    waits = PendingFetches()
    for i in range(1_000):
        waits.add(job("t", 2**50 + i, 1e9))
    (rows,) = (order._rows for order in waits._by_topic.values())
    looked = Looked(rows)
    waits._by_topic["t"]._rows = looked
    for i in range(1_000):
        assert waits.take_ready("t", i, 10) == []
    assert looked.times <= 3_000


class Looked(list[tuple[float, int]]):
    """A list that counts how often somebody looks at something in it."""

    times = 0

    def __getitem__(self, at: Any) -> Any:
        self.times += 1
        return super().__getitem__(at)

    def __iter__(self) -> Iterator[tuple[float, int]]:
        self.times += len(self)
        return super().__iter__()


# -- folders and files ----------------------------------------------------------------------------------


NAMES = [
    "t",
    "a b",
    "größe",
    "😀" * 50,
    "x" * 200,
    "CON",
    ".hidden",
    "...",
    "%2E",
    "a~b",
    "~",
    "$x;`y`",
    "\u200b",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_slug_is_a_harmless_file_name(name: str) -> None:
    """Readable, and reversible unless it had to be cut."""
    slug = topic_folder.slug(name)
    assert slug
    assert slug.isascii()
    assert slug.isprintable()
    assert "/" not in slug
    assert not slug.startswith(".")
    assert len(slug) + 17 <= 255
    if len(slug) < 200:
        assert unquote(slug) == name


def test_slugs_of_different_names_differ() -> None:
    """As long as they are short enough; the log's id tells the others apart."""
    slugs = [topic_folder.slug(name) for name in NAMES if len(topic_folder.slug(name)) < 200]
    assert len(set(slugs)) == len(slugs)


class NoName(PosixFileSystem):
    """Refuses to sync the folder of topics once a topic's folder has its name."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def open_directory(self, path: Path) -> SyncedBy:
        """See `FileSystem.open_directory`."""
        return SyncedBy(lambda: self._sync(path))

    def _sync(self, path: Path) -> None:
        self.synced.append(path.name)
        if path.name == "topics" and "topic.json" in {one.name for one in path.glob("t~*/*")}:
            raise OSError(errno.EIO, "no sync")


def test_folder_whose_name_is_not_durable_is_not_made(tmp_path: Path) -> None:
    """Nothing is promised about a topic that a loss of power could take; a start syncs what it finds."""
    catalog.scan(tmp_path)
    with pytest.raises(NotDurable, match="no sync"):
        catalog.make(tmp_path, TopicFile("t", 5, TopicSettings()), filesystem=NoName())
    assert list((tmp_path / "topics").iterdir()) == []
    disk = NoName()
    assert catalog.scan(tmp_path, disk).folders == []
    assert "topics" in disk.synced


@pytest.mark.parametrize("name", NAMES)
def test_a_topic_is_found_as_it_was_made(tmp_path: Path, name: str) -> None:
    """Made, saved, retired, removed."""
    topic = TopicFile(name, 2**63 - 7, TopicSettings(max_age=5.0))
    (tmp_path / "topics").mkdir()
    path = catalog.make(tmp_path, topic)
    assert catalog.scan(tmp_path).folders == [TopicFolder(path, topic)]
    changed = replace(topic, settings=TopicSettings(durability="synced"))
    catalog.save(path, changed)
    assert catalog.scan(tmp_path).folders == [TopicFolder(path, changed)]
    gone = catalog.retire(path)
    assert gone.name.startswith(".gone~")
    found = catalog.scan(tmp_path)
    assert (found.folders, found.strays) == ([], [])
    assert not gone.exists()


def test_names_of_copies_can_be_addressed(tmp_path: Path) -> None:
    """Whatever the original is called."""
    (tmp_path / "topics").mkdir()
    for name in NAMES:
        for log_id in (1, 2, 3):
            catalog.make(tmp_path, TopicFile(name, log_id, TopicSettings()))
    found = [folder.topic.name for folder in catalog.scan(tmp_path).folders]
    assert len(found) == len(set(found)) == 3 * len(NAMES)
    assert max(len(name.encode()) for name in found) <= TOPIC_BYTES_MAX


FILE = topic_file.encode(TopicFile("größe", 2**64 - 1, TopicSettings(max_age=1.5, max_bytes=7)))


def test_a_settings_file_is_read_as_it_was_written() -> None:
    for name in NAMES:
        for settings in (TopicSettings(), TopicSettings("synced", 1e10, 2**56, 1, 2**40, 0.001)):
            topic = TopicFile(name, 12345, settings)
            assert topic_file.decode(topic_file.encode(topic)) == topic


def test_a_damaged_settings_file_is_refused_wherever_the_damage_is() -> None:
    """Each byte changed, cut off there, or something behind the end."""
    for i in range(len(FILE)):
        for wrong in (FILE[:i], FILE[:i] + bytes([FILE[i] ^ 1]) + FILE[i + 1 :]):
            with refused("damaged"):
                topic_file.decode(wrong)
    for tail in (b"\n", b"x", FILE):
        with refused("damaged"):
            topic_file.decode(FILE + tail)


def test_settings_of_the_largest_topic_fit(tmp_path: Path) -> None:
    """The file is read up to a limit."""
    longest = TopicFile("\x7e" * 200, 2**64 - 1, TopicSettings("synced", 1e10, 2**56, 2**40, 2**40, 1e10))
    assert len(topic_file.encode(longest)) < topic_file.BYTES_MAX


# -- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (OSError(errno.ENOSPC, "full"), "disk_low"),
        (OSError(errno.EDQUOT, "full"), "disk_low"),
        (OSError(errno.EFBIG, "full"), "disk_low"),
        (OSError(errno.EMFILE, "short"), "busy"),
        (OSError(errno.ENFILE, "short"), "busy"),
        (OSError(errno.ENOMEM, "short"), "busy"),
        (OSError(errno.EIO, "broken"), "storage_failed"),
        (OSError("broken"), "storage_failed"),
        (error("bad_setting", "wrong"), "bad_setting"),
        (RuntimeError("a defect"), "internal"),
    ],
)
def test_what_the_system_refuses_has_one_code(problem: Exception, code: str) -> None:
    """What passes can be tried again, unless somebody broke off in the middle of it."""
    told = as_error(problem, "t", Path("data"))
    assert told.code == code
    assert told.retryable == (code in {"disk_low", "busy"})
    assert any(word in told.text for word in ("full", "short", "broken", "wrong", "a defect"))
    assert ("data: " in told.text) == (code == "storage_failed"), "it names the path"
    assert not broken_off(problem, "t", Path("data")).retryable
