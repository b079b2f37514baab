"""Following: it reports each window once, after its end, through restarts and losses."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.deadlines import eventually
from kit.spark.workers import LocalWorkers
from quoth import Client
from quoth.spark.statistics.following import NAME, Follower
from quoth.spark.statistics.survey import Survey, WindowRow
from quothwire.errors import Conflict, Damaged, NotFound, RequestError

WIDTH = 1_000


class Kept:
    """The results of looks by their numbers, as the job stores them."""

    def __init__(self, client: Client, directory: Path | None) -> None:
        self.looks: dict[int, Survey] = {}
        self.fails = False
        self._client = client
        self._directory = directory

    def keep(self, number: int, seen: Survey) -> None:
        """Keep a look, and die right after if that is wanted."""
        self.looks[number] = seen
        if self.fails:
            raise KeyboardInterrupt

    def look(self, topics: str, since: int = 0, looks: int = 1) -> list[Survey | None]:
        """A run of so many looks."""
        with Follower(self._directory, topics, WIDTH, None, since) as follower:
            return [follower.look(self._client, LocalWorkers(), self.keep) for _ in range(looks)]

    @property
    def rows(self) -> list[WindowRow]:
        """All windows that are kept."""
        return [row for number in sorted(self.looks) for row in self.looks[number].rows]


@pytest.fixture
def kept(client: Client, tmp_path: Path) -> Kept:
    return Kept(client, tmp_path / "checkpoint")


def publish_behind(client: Client, topic: str, count: int = 2_500) -> int:
    """Publish in a window behind all that are there; returns the first pointer."""
    last = client.topic(topic).last if topic in client.topics() else 0
    found: list[int] = []

    def later() -> bool:
        found.append(client.publish(topic, [b"x"] * count).first)
        return found[-1] // WIDTH > last // WIDTH

    eventually(later, "time goes on")
    return found[-1]


def test_a_window_is_reported_once_after_its_end(client: Client, kept: Kept, topic: str) -> None:
    for _ in range(5):
        publish_behind(client, topic)
        kept.look(topic, looks=2)
        newest = client.topic(topic).last
        starts = [row.start for row in kept.rows]
        assert starts == sorted(set(starts))
        assert starts[-1] + WIDTH <= newest
        over = [one for one in client.read(topic, limit=10**6) if one.pointer < newest // WIDTH * WIDTH]
        assert sum(row.records for row in kept.rows) == len(over)
    assert kept.look(topic) == [None], "nothing has come"


def test_a_run_that_died_after_saving_a_look_replaces_it(client: Client, kept: Kept, topic: str) -> None:
    publish_behind(client, topic)
    kept.look(topic)
    publish_behind(client, topic)
    kept.fails = True
    with pytest.raises(KeyboardInterrupt):
        kept.look(topic)
    kept.fails = False
    publish_behind(client, topic)
    kept.look(topic)
    assert sorted(kept.looks) == [0, 1]
    last = client.topic(topic).last // WIDTH * WIDTH
    expected = [one for one in client.read(topic, limit=10**6) if one.pointer < last]
    assert sum(row.records for row in kept.rows) == len(expected)


def test_records_removed_before_a_look_are_counted_exactly(client: Client, kept: Kept, topic: str) -> None:
    publish_behind(client, topic)
    kept.look(topic)
    client.roll(topic)
    first = publish_behind(client, topic)
    client.trim(topic, first)
    publish_behind(client, topic)
    (seen,) = kept.look(topic)
    assert seen is not None
    info = client.topic(topic)
    (gap,) = seen.gaps
    counted = sum(row.records for row in kept.rows)
    left = client.count(topic, seen.reached[topic].next - 1).records
    assert (gap.reason, gap.records) == ("trimmed", info.first_ordinal + info.count - counted - left)
    assert gap.records > 0


def test_a_topic_that_was_created_again_is_reported_once_and_read_from_its_beginning(
    client: Client, kept: Kept, topic: str
) -> None:
    one, other = f"{topic}-1", f"{topic}-2"
    for name in (one, other):
        publish_behind(client, name)
    kept.look(f"{topic}-*")
    client.delete_topic(one)
    client.create_topic(one)
    for _ in range(2):
        publish_behind(client, other)
        kept.look(f"{topic}-*")
    assert [seen.gaps for seen in kept.looks.values()] == [[], [], []], "it has no windows yet"
    first, before = publish_behind(client, one), len(kept.rows)
    publish_behind(client, one)
    kept.look(f"{topic}-*", looks=2)
    (gap,) = [gap for seen in kept.looks.values() for gap in seen.gaps]
    assert (gap.topic, gap.records, gap.reason) == (one, -1, "recreated")
    assert next(row.first for row in kept.rows[before:] if row.topic == one) == first


def test_topics_that_match_later_are_read_from_their_beginning(
    client: Client, kept: Kept, topic: str
) -> None:
    publish_behind(client, f"{topic}-a")
    begin = publish_behind(client, f"{topic}-a")
    publish_behind(client, f"{topic}-a")
    kept.look(f"{topic}-*", since=begin)
    assert kept.rows[0].first == begin, "it begins where since says"
    first = publish_behind(client, f"{topic}-b")
    publish_behind(client, f"{topic}-b")
    kept.look(f"{topic}-*", since=0)
    assert next(row.first for row in kept.rows if row.topic == f"{topic}-b") == first
    with pytest.raises(NotFound):
        kept.look(f"{topic}-c")
    for _ in range(2):
        first_look, again = Kept(client, None).look(f"{topic}-b", looks=2)
        assert first_look is not None, "without a checkpoint nothing is remembered"
        assert again is None


def test_a_checkpoint_is_for_one_at_a_time_and_for_its_settings(tmp_path: Path) -> None:
    with Follower(tmp_path, "*", WIDTH, None) as follower:
        follower.save()
        with pytest.raises(Conflict) as locked:
            Follower(tmp_path, "*", WIDTH, None)
        assert locked.value.code == "locked"
    for width, out in ((2, None), (WIDTH, "there")):
        with pytest.raises(RequestError, match="was begun with"):
            Follower(tmp_path, "*", width, out)
    assert not Follower(tmp_path, "*", WIDTH, None).is_new


def test_a_damaged_checkpoint_or_one_of_another_source_is_refused_and_not_changed(tmp_path: Path) -> None:
    for content, problem in (
        ("", Damaged),
        ("{}", Damaged),
        ("[]", Damaged),
        ('{"stats": 2, "looks": 0}', Damaged),
        ('{"stats": 1, "looks": "x"}', Damaged),
        ('{"stats": 1, "looks": 0, "offset": {"kafka": 1}}', RequestError),
    ):
        (tmp_path / NAME).write_text(content)
        with pytest.raises(problem):
            Follower(tmp_path, "*", WIDTH, None)
        assert (tmp_path / NAME).read_text() == content
