"""`quoth group dead` lists, prints, retries and drops dead letters: each record is retried once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable

import pytest

from kit.client.records import values
from kit.deadlines import eventually
from kit.machine.commands import Command
from quoth import Client
from quoth.groups.letters.dead_letters import HANDLED, LettersLeft
from quoth.groups.letters.letter_retry import CHUNK
from quothwire import batch
from quothwire import pointer as pointers

Bury = Callable[..., list[int]]

KILLED = "import os; from quothcli.groups import letters; letters.LetterBox.finish = lambda *_: os._exit(9)"
"""Kills the command between the publish of records and the acknowledgement of their letters."""


@pytest.fixture
def left(quoth: Command, topic: str) -> Callable[[], list[int]]:
    """Return the pointers of the letters that are left."""

    def listed() -> list[int]:
        found = quoth("group", "dead", "ls", topic, "g", "--format", "raw")
        assert (found.status, found.err) == (0, "")
        return list(map(int, found.lines))

    return listed


def test_letters_are_listed_and_shown(quoth: Command, client: Client, topic: str, bury: Bury) -> None:
    assert quoth("group", "create", topic, "g").status == 0
    assert quoth("group", "dead", "ls", topic, "g") == (0, b"", ""), "there is no dead-letter topic yet"
    for verb, done in (("retry", "retried"), ("drop", "dropped")):
        found = quoth("group", "dead", verb, topic, "g", "--all")
        assert found == (0, f"{done} 0 letters of {topic}.g.dead\n".encode(), "")
    letters = bury(b"one", b"two")
    originals = [one.pointer for one in client.read(topic)]
    listed = quoth("group", "dead", "ls", topic, "g")
    moments = list(map(pointers.to_text, letters))
    assert listed.lines == [
        f"{letters[0]}\t{moments[0]}\t{originals[0]}\t1 attempt\tcannot bill one",
        f"{letters[1]}\t{moments[1]}\t{originals[1]}\t1 attempt\tcannot bill two",
    ]
    assert quoth("group", "dead", "ls", topic, "g", "--limit", "1").lines == listed.lines[:1]
    found = quoth("group", "dead", "ls", topic, "g", "--format", "json").objects[1]
    assert (found["pointer"], found["original"], found["attempts"]) == (letters[1], originals[1], 1)
    assert (found["reason"], found["letters"]) == ("cannot bill two", f"{topic}.g.dead")
    show = ("group", "dead", "show", topic, "g", str(letters[1]))
    shown = dict(line.split(maxsplit=1) for line in quoth(*show).lines)
    assert shown["record"] == f"{originals[1]}  {pointers.to_text(originals[1])}, in {topic}"
    assert (shown["reason"], shown["key"], shown["headers"]) == ("cannot bill two", "ktwo", "own=two")
    assert shown["value"] == "3 B, two"
    assert quoth(*show, "--format", "raw").out == b"two\n"
    assert quoth(*show, "--format", "json").objects[0]["headers"]["quoth-reason"] == "cannot bill two"
    assert quoth(*show, "--template", "{headers[quoth-pointer]} {value}").lines == [f"{originals[1]} two"]


def test_retry_publishes_records_as_they_were(
    quoth: Command, client: Client, topic: str, bury: Bury, left: Callable[[], list[int]]
) -> None:
    letters = bury(b"a", b"b", b"c")
    first = quoth("group", "dead", "retry", topic, "g", str(letters[2]), "--format", "json")
    (found,) = first.objects
    assert (first.status, found["retried"], found["duplicates"], found["handled"]) == (0, 1, 0, 0)
    assert left() == letters[:2]
    again = client.get(topic, found["first"])
    assert (again.value, again.key, dict(again.headers)) == (b"c", b"kc", {"own": b"c"})
    several = quoth("group", "dead", "retry", topic, "g", *map(str, reversed(letters)))
    assert several.lines == [
        f"retried 2 letters of {topic}.g.dead; 1 other had been retried or dropped before"
    ]
    assert values(client, topic) == [b"a", b"b", b"c", b"c", b"a", b"b"]
    assert left() == []
    assert quoth("group", "dead", "retry", topic, "g", "--all").lines == [
        f"retried 0 letters of {topic}.g.dead"
    ]
    assert quoth("group", "dead", "show", topic, "g", str(letters[0])).status == 0, "it lies there still"


def test_drop_hides_letters_and_seek_brings_them_back(
    quoth: Command, client: Client, topic: str, bury: Bury, left: Callable[[], list[int]]
) -> None:
    letters = bury(b"a", b"b", b"c")
    dropped = quoth("group", "dead", "drop", topic, "g", str(letters[1]), "--format", "json")
    assert (dropped.objects[0]["dropped"], left()) == (1, [letters[0], letters[2]])
    later = bury(b"d")[-1]
    assert left() == [letters[0], letters[2], later]
    everything = quoth("group", "dead", "drop", topic, "g", "--all")
    assert everything.lines == [f"dropped 3 letters of {topic}.g.dead"]
    assert left() == []
    (lag,) = (one["lag"] for one in quoth("group", "ls", f"{topic}.g.dead", "--format", "json").objects)
    assert lag == 0
    shown = quoth("group", "info", f"{topic}.g.dead", HANDLED).out
    assert b"  a member without a name: 0 records in flight, seen " in shown
    assert len(values(client, topic)) == 4, "nothing was published"
    assert quoth("group", "seek", f"{topic}.g.dead", HANDLED, "--to", str(letters[2])).status == 0
    assert left() == [letters[2], later]


def test_record_is_stored_once_however_often_its_letter_is_retried(
    quoth: Command, client: Client, topic: str, bury: Bury, left: Callable[[], list[int]], rng: random.Random
) -> None:
    """The command dies before it acknowledges letters; the letters come in any order."""
    count = 2 * CHUNK + 7
    names = [b"%d" % number for number in range(count)]
    letters = bury(*names)
    assert len(letters) == count
    killed = quoth.prepared(KILLED)
    retry = ("group", "dead", "retry", topic, "g")
    for _ in range(4):
        chosen = list(map(str, rng.sample(letters, rng.randint(1, 5))))
        if set(map(int, chosen)) & set(left()):
            assert killed(*retry, *chosen).status == 9
        assert quoth(*retry, *chosen).status == 0
    waiting = len(left())
    assert killed(*retry, "--all").status == 9
    assert len(left()) == waiting, "none is acknowledged"
    (last,) = quoth(*retry, "--all", "--format", "json").objects
    assert (last["retried"], last["duplicates"]) == (waiting, min(waiting, CHUNK))
    assert left() == []
    assert Counter(values(client, topic)) == dict.fromkeys(names, 2)
    quoth("group", "seek", f"{topic}.g.dead", HANDLED, "--to", "begin")
    assert quoth(*retry, str(letters[-1])).status == 0
    assert Counter(values(client, topic)) == dict.fromkeys(names, 2), "the newest one is known still"


OTHER_RETRY = """
from quothcli.application import run
from quothcli.groups import letters as letter_box
retry = letter_box.Redelivery.retry

def retry_after_another_command(self, letters):
    letter_box.Redelivery.retry = retry
    assert run(["group", "dead", "retry", TOPIC, "g", "--all"]) == 0
    retry(self, letters)

letter_box.Redelivery.retry = retry_after_another_command
"""
"""Another command retries all letters once this one has listed the first of them."""


def test_two_commands_that_retry_at_a_time_store_each_record_once(
    quoth: Command, client: Client, topic: str, bury: Bury, left: Callable[[], list[int]]
) -> None:
    names = [b"%d" % number for number in range(5 * CHUNK)]
    bury(*names)
    both = quoth.prepared(OTHER_RETRY.replace("TOPIC", repr(topic)))
    ended = both("group", "dead", "retry", topic, "g", "--all", "--format", "json")
    found = json.loads(ended.lines[-1])
    assert (ended.status, found["retried"], found["handled"]) == (0, 0, len(names))
    assert left() == []
    assert Counter(values(client, topic)) == dict.fromkeys(names, 2)


def test_groups_may_share_a_topic_for_their_letters(
    quoth: Command, client: Client, topic: str, bury: Bury
) -> None:
    failed = f"{topic}.failed"
    first, other = (bury(name.encode(), group=name, dead_letter=failed) for name in ("one", "two"))
    # the second group has rejected the first record, too
    for name, letters in (("one", first), ("two", other)):
        listed = quoth("group", "dead", "ls", topic, name, "--format", "raw")
        assert list(map(int, listed.lines)) == letters
    happened, _ = quoth("group", "dead", "drop", topic, "one", str(other[0])).refused(3)
    assert happened.startswith(f"quoth: unknown_record: the record {other[0]} of topic {failed!r} is no dead")
    assert quoth("group", "dead", "drop", topic, "two", "--all").status == 0
    assert quoth("group", "dead", "ls", topic, "one", "--format", "raw").lines == [str(first[0])]
    assert quoth("group", "dead", "ls", topic, "two").out == b""


def test_letter_of_a_large_record_is_retried_whole(
    quoth: Command, client: Client, topic: str, left: Callable[[], list[int]]
) -> None:
    """A record that leaves no room for the headers gives a letter without a value."""
    large = bytes(batch.BATCH_BYTES_MAX - 200)
    stamp = client.publish(topic, large).first
    with client.group(topic, "g") as member:
        member.fetch(1)[0].term()
    letters = eventually(left, "it is a dead letter")
    assert client.get(f"{topic}.g.dead", letters[0]).value == b""
    assert quoth("group", "dead", "retry", topic, "g", "--all").status == 0
    assert [one.value == large for one in client.read(topic)] == [True, True]
    client.publish(topic, b"")
    client.roll(topic)
    client.trim(topic, client.publish(topic, b"newer").first)
    client.group(f"{topic}.g.dead", HANDLED, create=False).seek("begin")
    assert stamp < client.topic(topic).first
    happened, advice = quoth("group", "dead", "retry", topic, "g", "--all").err.splitlines()[1:]
    assert happened.startswith(f"quoth: not_retried: the letter {letters[0]} has no content, and its record ")
    assert "quoth group dead drop" in advice


def test_letters_outlive_their_group(quoth: Command, topic: str, bury: Bury) -> None:
    letters = bury(b"a")
    assert quoth("group", "rm", topic, "g", "--yes").status == 0
    assert quoth("group", "dead", "ls", topic, "g", "--format", "raw").lines == [str(letters[0])]
    assert quoth("group", "dead", "retry", topic, "g", "--all").status == 0
    assert quoth("group", "dead", "ls", topic, "other").refused(3)[0].startswith("quoth: unknown_group: ")


def test_mistakes_are_answered_with_what_to_do(quoth: Command, client: Client, topic: str) -> None:
    client.publish(topic, b"a")
    assert quoth("group", "create", topic, "g", "--dead-letter", "none").status == 0
    happened, advice = quoth("group", "dead", "ls", topic, "g").refused(1)
    assert happened == f"quoth: no_dead_letters: group 'g' of topic '{topic}' writes no dead letters"
    assert "quoth group set --dead-letter" in advice
    quoth("group", "set", topic, "g", "--dead-letter", f"{topic}.dead")
    client.publish(f"{topic}.dead", b"no letter")
    (stamp,) = (one.pointer for one in client.read(f"{topic}.dead"))
    for verb in ("show", "retry", "drop"):
        happened, advice = quoth("group", "dead", verb, topic, "g", str(stamp)).refused(3)
        where = f"the record {stamp} of topic '{topic}.dead'"
        assert happened == f"quoth: unknown_record: {where} is no dead letter of group 'g'"
        assert advice == "hint: `quoth group dead ls` lists them"
    for typed in ((), ("5", "--all")):
        assert (
            "give the POINTERs of letters, or --all"
            in quoth("group", "dead", "retry", topic, "g", *typed).err
        )


def test_letters_left_are_those_in_ranges_and_above_the_cursor() -> None:
    left = LettersLeft(after=10, cursor=30, ranges=[(11, 12), (15, 15), (20, 30)])
    assert [pointer for pointer in range(1, 36) if left.has(pointer)] == [
        11, 12, 15, *range(20, 36),
    ]  # fmt: skip
    assert LettersLeft().has(1)
