"""`quoth count` and `quoth split` count and divide ranges of a topic."""

from __future__ import annotations

from collections.abc import Callable

from kit.machine.commands import Command

Fill = Callable[..., list[int]]


def test_count_of_a_range(quoth: Command, topic: str, fill: Fill) -> None:
    stamps = fill(b"one", b"two", b"three")
    (found,) = quoth("count", topic, "--format", "json").objects
    assert (found["records"], found["first"], found["last"]) == (3, stamps[0], stamps[2])
    between = quoth("count", topic, "--after", str(stamps[0]), "--until", str(stamps[2]))
    assert between.out.startswith(b"1 record, ")
    assert quoth("count", topic, "--since", str(stamps[1]), "--format", "raw").out == b"2\n"
    nothing = quoth("count", topic, "--after", str(stamps[2]))
    assert (nothing.status, nothing.out) == (0, b"0 records, 0 B\n")


def test_until_excludes_its_record_for_read_count_and_split(quoth: Command, topic: str, fill: Fill) -> None:
    """Ranges that touch count each record once."""
    stamps = fill(b"one", b"two", b"three")
    for until in (0, *stamps, stamps[-1] + 1):
        read = quoth("read", topic, "--until", str(until)).lines
        assert quoth("count", topic, "--until", str(until), "--format", "raw").lines == [str(len(read))]
        rest = quoth("count", topic, "--since", str(until), "--format", "raw").lines
        assert rest == [str(len(stamps) - len(read))]
    assert quoth("split", topic, "--parts", "1", "--until", str(stamps[2]), "--format", "raw").lines == [
        f"0 {stamps[1]}"
    ]


def test_split_gives_ranges_of_whole_batches(quoth: Command, topic: str, fill: Fill) -> None:
    stamps = [*fill(b"one", b"two"), *fill(b"three")]
    parts = quoth("split", topic, "--parts", "2", "--format", "jsonl").objects
    assert [(one["after"], one["until"], one["records"]) for one in parts] == [
        (0, stamps[1], 2),
        (stamps[1], stamps[2], 1),
    ]
    assert quoth("split", topic, "--parts", "1", "--format", "raw").out == b"0 %d\n" % stamps[2]
    assert quoth("split", topic, "--parts", "1", "--after", str(stamps[2])).out == b""


def test_range_that_is_swapped_or_of_no_topic_is_refused(quoth: Command, topic: str, fill: Fill) -> None:
    (stamp,) = fill(b"one")
    happened, _ = quoth("count", topic, "--after", str(stamp), "--until", "1").refused(2)
    assert happened.startswith("quoth: bad_request: ")
    quoth("count", f"{topic}-none").refused(3)
