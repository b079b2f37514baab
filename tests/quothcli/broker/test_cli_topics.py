"""`quoth topic` lists, shows, makes, changes, trims and deletes topics; `quoth transaction` aborts."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

import quoth as library
from kit.machine.commands import Command, Ended
from quoth import Transaction
from quothcli.commands.broker import topics
from quothwire import pointer as pointers
from quothwire.settings import NAMES

Fill = Callable[..., list[int]]


def test_create_and_set_take_every_setting(quoth: Command, topic: str) -> None:
    made = quoth(
        "topic", "create", topic, "--durability", "synced", "--max-age", "1d12h", "--max-bytes", "10GiB",
        "--size-limit", "5MB", "--count-limit", "1000", "--age-limit", "90", "--retention", "until_acked",
        "--format", "json",
    )  # fmt: skip
    assert made.status == 0, made
    settings = {
        "durability": "synced", "max_age": 129_600.0, "max_bytes": 10 * 2**30, "size_limit": 5_000_000,
        "count_limit": 1_000, "age_limit": 90.0, "retention": "until_acked",
    }  # fmt: skip
    assert made.objects[0]["settings"] == settings
    changed = quoth("topic", "set", topic, "--max-age", "0", "--size-limit", "1M", "--format", "json")
    settings |= {"max_age": 0.0, "size_limit": 1_000_000}
    assert changed.objects[0]["settings"] == settings
    shown = dict(line.split(maxsplit=1) for line in quoth("topic", "info", topic).lines)
    assert shown["name"] == topic
    assert shown["durability"] == "synced"
    assert (shown["max_age"], shown["max_bytes"]) == ("no limit", "10 GiB"), "not in words"
    assert (shown["size_limit"], shown["count_limit"]) == ("1 MB", "1,000")
    assert shown["age_limit"] == "1 minute 30 seconds"
    unlimited = quoth("topic", "set", topic, "--max-age", "infinity", "--max-bytes", "infinity")
    assert unlimited.out.count(b"no limit") == 2
    again = quoth("topic", "create", topic)
    assert (again.status, again.out) == (1, b"")
    assert again.err.startswith("quoth: topic_exists: ")


def test_ls_sorts_names_by_their_bytes(quoth: Command, topic: str) -> None:
    names = [f"{topic}-{end}" for end in ("a", "ä b", "c")]
    for name in names:
        assert quoth("pub", name, "x").status == 0
    listed = [line for line in quoth("topic", "ls").lines if line.startswith(topic)]
    assert listed == [names[0], names[2], names[1]], "not in the order of their bytes"
    assert {found["name"] for found in quoth("topic", "ls", "--format", "json").objects} >= set(names)


def test_info_has_count_and_pointers(quoth: Command, topic: str, fill: Fill) -> None:
    stamps = fill(b"one", b"two")
    (found,) = quoth("topic", "info", topic, "--format", "json").objects
    assert (found["count"], found["first"], found["last"]) == (2, stamps[0], stamps[1])
    assert found["last_time"] == pointers.to_text(stamps[1])
    assert "records" in quoth("topic", "info", topic).out.decode()


def test_trim_removes_a_rolled_segment(quoth: Command, topic: str, fill: Fill) -> None:
    fill(b"one", b"two")
    assert quoth("topic", "roll", topic, "--format", "json").objects[0]["segments"] == 2
    last = fill(b"three")[-1]
    result = quoth("topic", "trim", topic, "--before", str(last), "--yes", "--format", "json")
    assert (result.status, result.objects[0]["records"], result.objects[0]["first"]) == (0, 2, last)
    assert quoth("read", topic, "--format", "raw").out == b"three\n"


def test_rm_without_a_terminal_needs_yes(quoth: Command, topic: str, fill: Fill) -> None:
    fill(b"one")
    result = quoth("topic", "rm", topic)
    assert (result.status, result.out) == (2, b"")
    assert result.err.startswith(f"quoth: usage: Delete topic '{topic}' with 1 record? No terminal is there ")
    assert quoth("read", topic, "--format", "raw").out == b"one\n"
    result = quoth("topic", "rm", topic, "--yes", "--format", "json")
    assert (result.status, result.objects[0]["records"]) == (0, 1)
    assert quoth("read", topic).status == 3
    assert quoth("topic", "rm", topic, "--yes").status == 3


def answered(quoth: Command, answer: str, *typed: str) -> Ended:
    """Type a command at a terminal, and the answer to its question."""
    keyboard, terminal = os.openpty()
    try:
        running = quoth.start(*typed, stdin=terminal)
        os.write(keyboard, answer.encode())
        return running.end()
    finally:
        os.close(terminal)
        os.close(keyboard)


def test_rm_and_trim_ask_at_a_terminal(quoth: Command, topic: str, fill: Fill) -> None:
    fill(b"one")
    assert quoth("topic", "roll", topic).status == 0
    (last,) = fill(b"two")
    for typed, question, declined, left in (
        (("trim", topic, "--before", str(last)), f"Only whole segments go, and topic '{topic}' has 2. "
         "Remove up to 1 record (", 2, 1),
        (("rm", topic), f"Delete topic '{topic}' with 1 record? [y/N]:", 1, 0),
    ):  # fmt: skip
        for answer, status, lines in (("n\n", 1, declined), ("\n", 1, declined), ("\x04", 130, declined),
                                      ("y\n", 0, left)):  # fmt: skip
            ended = answered(quoth, answer, "topic", *typed)
            assert ended.status == status, ended
            assert ended.err.startswith(question)
            assert len(quoth("read", topic).lines) == lines


def test_trim_without_a_terminal_needs_yes(quoth: Command, topic: str, fill: Fill) -> None:
    fill(b"one", b"two")
    assert quoth("topic", "roll", topic).status == 0
    (last,) = fill(b"three")
    trim = ("topic", "trim", topic, "--before", str(last))
    result = quoth(*trim)
    assert (result.status, result.out) == (2, b"")
    size = quoth("count", topic, "--until", str(last)).out.decode().split(", ")[1]
    most = f"up to 2 records ({size}) older than {pointers.to_text(last)}"
    segments = f"Only whole segments go, and topic '{topic}' has 2."
    assert result.err.startswith(f"quoth: usage: {segments} Remove {most}? ")
    assert "--yes" in result.err
    assert quoth(*trim, "--dry-run").out.decode() == f"would remove {most}. {segments}\n"
    (found,) = quoth(*trim, "--dry-run", "--format", "json").objects
    assert (found["records_max"], found["before"], found["segments"]) == (2, last, 2)
    assert len(quoth("read", topic).lines) == 3, "nothing was removed"
    assert quoth(*trim, "--yes", "--format", "raw").lines == ["2"]


def test_trim_with_nothing_older_does_not_ask(quoth: Command, topic: str, fill: Fill) -> None:
    (first,) = fill(b"one")
    for options in ((), ("--yes",)):
        trim = ("topic", "trim", topic, "--before", str(first), *options)
        assert quoth(*trim) == (0, f"nothing is older than {pointers.to_text(first)}\n".encode(), "")
        (told,) = quoth(*trim, "--format", "json").objects
        assert told == {"topic": topic, "records": 0, "bytes": 0, "first": first}
        assert quoth(*trim, "--format", "raw").out == b"0\n"


def test_wrong_name_suggests_a_similar_one(quoth: Command, topic: str, fill: Fill) -> None:
    fill(b"one")
    for typed in ("topic info", "read", "count", "topic rm --yes", "topic roll"):
        command = typed.split()
        result = quoth(*command[:2], topic[:-1] + "x", *command[2:])
        assert result.status == 3
        assert result.err.splitlines()[1] == f"hint: did you mean '{topic}'? `quoth topic ls` lists them"
        assert "did you mean" not in quoth(*command[:2], "ZZZZZZZZ", *command[2:]).err


def test_every_setting_of_a_topic_is_an_option() -> None:
    assert tuple(topics._SETTINGS) == NAMES


def test_setting_that_the_broker_refuses_makes_no_topic(quoth: Command, topic: str) -> None:
    result = quoth("topic", "create", topic, "--size-limit", "0")
    assert result.status == 2
    assert "size_limit is a number from 1" in result.err
    assert quoth("topic", "info", topic).status == 3, "a topic was made"


# -- transactions ---------------------------------------------------------------------------------


Stage = Callable[..., Transaction]


@pytest.fixture
def begun(quoth: Command, topic: str) -> Stage:
    """Stage a part of a transaction, and publish it or not."""

    def stage(application: str, version: int, *values: bytes, publish: bool = False) -> Transaction:
        with library.connect(quoth.url) as client:
            transaction = client.transaction(topic, application, version)
            with transaction.part(0) as writer:
                writer.write(values)
                part = writer.finish()
            if publish:
                transaction.publish([part])
            return transaction

    return stage


def test_status_is_published_staged_or_unknown(quoth: Command, topic: str, begun: Stage) -> None:
    begun("etl", 1, b"a", b"b", publish=True)
    begun("etl", 2, b"c")
    (published,) = quoth("transaction", "status", topic, "etl", "1", "--format", "json").objects
    assert (published["state"], published["count"]) == ("published", 2)
    assert published["last"] == published["first"] + 1
    assert (published["topic"], published["application"], published["version"]) == (topic, "etl", 1)
    (staged,) = quoth("transaction", "status", topic, "etl", "2", "--format", "json").objects
    assert (staged["state"], staged["records"], staged["newest_version"]) == ("staged", 1, 1)
    lines = [quoth("transaction", "status", topic, "etl", version).lines[0] for version in "123"]
    moment = pointers.to_text(published["first"])
    assert lines[0] == f"published: 2 records, {published['first']} to {published['last']}, {moment}"
    assert lines[1].startswith("staged: 1 record, ")
    assert lines[1].endswith(", in 1 batch of 1 part")
    assert lines[2] == "unknown; the newest version that is published: 1"
    unknown = quoth("transaction", "status", topic, "other", "1")
    assert unknown.lines == ["unknown; the newest version that is published: none"]
    assert quoth("transaction", "status", topic, "etl", "1", "--format", "raw").out == b"published\n"


def test_abort_removes_what_is_staged(quoth: Command, topic: str, begun: Stage) -> None:
    begun("etl", 0, b"a", b"b")
    result = quoth("transaction", "abort", topic, "etl", "0")
    assert result.status == 0
    assert result.lines[0].startswith("removed 2 records, ")
    assert quoth("transaction", "status", topic, "etl", "0", "--format", "raw").out == b"unknown\n"
    assert quoth("transaction", "abort", topic, "etl", "0", "--format", "raw").out == b"0\n"


def test_abort_of_a_published_one_fails_and_removes_nothing(quoth: Command, topic: str, begun: Stage) -> None:
    begun("etl", 0, b"a", publish=True)
    result = quoth("transaction", "abort", topic, "etl", "0")
    assert (result.status, result.out) == (1, b"")
    assert result.err.startswith("quoth: already_published: published: 1 record, ")
    assert "nothing was removed" in result.err
    (found,) = quoth("transaction", "abort", topic, "etl", "0", "--format", "json").objects
    assert (found["state"], found["records"]) == ("published", 0)
    assert quoth("read", topic, "--format", "raw").out == b"a\n"


def test_names_that_do_not_exist_or_cannot_are_refused(quoth: Command) -> None:
    for typed, status, says in (
        (("t", "", "0"), 2, "bad_request"),
        (("a/b", "app", "0"), 2, "bad_topic"),
        (("no such topic", "app", "0"), 3, "unknown_topic"),
    ):
        for verb in ("status", "abort"):
            happened, _ = quoth("transaction", verb, *typed).refused(status)
            assert says in happened
