"""`quoth transaction` shows the state of a transaction and aborts it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import quoth as library
from kit.machine.commands import Command
from quoth import Transaction
from quothwire import pointer as pointers

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
    told = quoth("transaction", "abort", topic, "etl", "0")
    assert told.status == 0
    assert told.lines[0].startswith("removed 2 records, ")
    assert quoth("transaction", "status", topic, "etl", "0", "--format", "raw").out == b"unknown\n"
    assert quoth("transaction", "abort", topic, "etl", "0", "--format", "raw").out == b"0\n"


def test_abort_of_a_published_one_fails_and_removes_nothing(quoth: Command, topic: str, begun: Stage) -> None:
    begun("etl", 0, b"a", publish=True)
    told = quoth("transaction", "abort", topic, "etl", "0")
    assert (told.status, told.out) == (1, b"")
    assert told.err.startswith("quoth: already_published: published: 1 record, ")
    assert "nothing was removed" in told.err
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
