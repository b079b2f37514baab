"""Compiled iterators of messages beside the Python functions that define them."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Generator, Iterable
from typing import Any

import pytest

from kit.pure import needs_compiled, outcome, pure
from kit.scale import times
from quoth import batch
from quoth.message import Message
from quothwire import pointer

HOSTILE: list[Any] = [
    None, -1, 2**64, pointer.POINTER_MAX, 1.0, True, "text", b"ab", (), {}, object(), [], [None], [b"a"] * 2,
]  # fmt: skip


def rows_of(*columns: Any) -> list[tuple[Any, ...]]:
    return [tuple(message) for message in batch.messages_of(*columns)]


def random_columns(rng: random.Random) -> tuple[Any, ...]:
    """Return the arguments of `messages_of`. Columns may have different lengths."""
    count = rng.choice((0, 1, 2, 100))
    lengths = [count if rng.random() < 0.8 else rng.randrange(4) for _ in range(3)]
    values = [rng.randbytes(3) for _ in range(lengths[0])]
    keys = rng.choice((None, [rng.choice((None, b"", b"key")) for _ in range(lengths[1])]))
    headers = rng.choice((None, [{"a": b"%d" % row} for row in range(lengths[2])]))
    return "topic", rng.choice((0, 1, 2**32, pointer.POINTER_MAX)), values, keys, headers


@needs_compiled
def test_messages_are_the_same_in_c_and_in_python(seed: int, rng: random.Random) -> None:
    plain = pure("quoth.batch")
    for _ in range(times(500, 50_000)):
        given = random_columns(rng)
        label = f"QUOTH_SEED={seed} {given}"
        found = list(batch.messages_of(*given))
        assert found == list(plain.messages_of(*given)), label
        assert {Message}.issuperset(map(type, found)), label


@needs_compiled
def test_wrong_arguments_have_the_same_outcome_in_c_and_in_python(rng: random.Random) -> None:
    plain = pure("quoth.batch")
    for _ in range(times(2_000, 50_000)):
        given = [rng.choice(HOSTILE) for _ in range(5)]
        expected = outcome(lambda columns: list(plain.messages_of(*columns)), given)
        assert outcome(lambda columns: list(batch.messages_of(*columns)), given) == expected, given


def test_a_message_that_is_held_stays_as_it_is(seed: int, rng: random.Random) -> None:
    """One that is not may be filled again for a later record."""
    for _ in range(times(200, 20_000)):
        count, share = rng.randrange(60), rng.random()
        values = [rng.randbytes(rng.randrange(4)) for _ in range(count)]
        keys = [rng.choice((None, b"key")) for _ in range(count)]
        headers = rng.choice((None, [{"row": b"%d" % row} for row in range(count)]))
        expected = [
            Message("t", 5 + row, values[row], keys[row], headers[row] if headers else {})
            for row in range(count)
        ]
        kept: list[tuple[int, Any]] = []
        for row, message in enumerate(batch.messages_of("t", 5, values, keys, headers)):
            if rng.random() < share:
                kept.append((row, rng.choice((message, [message], {row: message}))))
        for row, held in kept:
            found = held if isinstance(held, Message) else held[0 if isinstance(held, list) else row]
            assert found == expected[row], f"QUOTH_SEED={seed} {row} of {count}"


def test_headers_that_ask_for_the_next_message_as_they_are_released_get_it() -> None:
    class Asking(dict[str, bytes]):
        def __del__(self) -> None:
            asked.extend(message.pointer for message in [next(messages, None)] if message)

    asked: list[int] = []
    headers: list[Any] = [Asking() for _ in range(40)]
    messages = batch.messages_of("t", 0, [b"%d" % row for row in range(40)], None, headers)
    looked_at = []
    for message in messages:
        headers[message.pointer] = None
        looked_at.append(message.pointer)
        assert message.value == b"%d" % message.pointer
    assert sorted(looked_at + asked) == list(range(40))
    del message


def test_columns_that_change_while_they_are_iterated_end_the_messages() -> None:
    for column in range(3):
        columns: list[Any] = [[b"a", b"b", b"c"], [b"k", None, b"l"], [{}, {}, {}]]
        messages = batch.messages_of("t", 1, *columns)
        assert next(messages).value == b"a"
        columns[column].clear()
        assert list(messages) == []
        columns[column] += [b"x"] * 3
        assert list(messages) == []


def test_finalizers_that_run_while_a_message_is_made_may_change_its_columns() -> None:
    values = [b"%d" % number for number in range(5_000)]

    class Clearing:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            values.clear()

    messages = batch.messages_of("t", 1, values, None, None)
    before = gc.get_threshold()
    Clearing()
    gc.set_threshold(1)
    try:
        kept = list(messages)
    finally:
        gc.set_threshold(*before)
    assert kept == [Message("t", 1 + row, b"%d" % row, None, {}) for row in range(len(kept))]


@needs_compiled
def test_messages_and_their_iterators_keep_only_what_they_need() -> None:
    value, key, headers = b"value of the test", b"key of the test", {"a": b"1"}
    before = [sys.getrefcount(one) for one in (value, key, headers)]
    messages = batch.messages_of("t", 1, [value], [key], [headers])
    found = next(messages)
    assert [sys.getrefcount(one) - 2 for one in (value, key, headers)] == before
    assert next(messages, None) is None  # the end lets the columns go
    assert [sys.getrefcount(one) - 1 for one in (value, key, headers)] == before
    del found
    assert [sys.getrefcount(one) for one in (value, key, headers)] == before


def test_iterating_does_not_leak() -> None:
    counted = len(gc.get_objects())
    for _ in range(1_000):
        assert len(rows_of("t", 1, [b"a"] * 3, None, None)) == 3
    gc.collect()
    assert len(gc.get_objects()) < counted + 200


def parts_of(found: list[str], fails: bool = False) -> Generator[Iterable[Message], None, None]:
    """Yield two parts, and note how it ends."""
    try:
        yield batch.messages_of("t", 1, [b"a", b"b"], None, None)
        if fails:
            raise KeyError("of the test")
        yield batch.messages_of("t", 3, [b"c"], None, None)
    except GeneratorExit:
        found.append("closed")
        raise
    finally:
        found.append("ended")


def test_parts_follow_each_other_and_errors_pass() -> None:
    ends: list[str] = []
    assert [message.value for message in batch.flattened(parts_of(ends))] == [b"a", b"b", b"c"]
    assert ends == ["ended"]
    messages = batch.flattened(parts_of(ends, fails=True))
    assert [next(messages).value, next(messages).value] == [b"a", b"b"]
    with pytest.raises(KeyError):
        next(messages)
    assert list(messages) == []


@pytest.mark.parametrize("by_name", [True, False])
def test_the_parts_are_closed_with_their_messages(by_name: bool) -> None:
    ends: list[str] = []
    messages = batch.flattened(parts_of(ends))
    next(messages)
    if by_name:
        messages.close()  # type: ignore[attr-defined]
    del messages
    assert ends == ["closed", "ended"]


def test_an_error_while_the_parts_end_is_raised_by_close() -> None:
    def failing() -> Generator[Iterable[Message], None, None]:
        try:
            yield batch.messages_of("t", 1, [b"a"], None, None)
        finally:
            raise OSError("of the test")

    messages = batch.flattened(failing())
    next(messages)
    with pytest.raises(OSError, match="of the test"):
        messages.close()  # type: ignore[attr-defined]


@needs_compiled
def test_messages_of_several_batches_are_the_same_in_c_and_in_python(seed: int, rng: random.Random) -> None:
    """A part may also be empty, be no batch at all, or hold parts itself."""
    plain = pure("quoth.batch")
    for _ in range(times(300, 30_000)):
        columns = [random_columns(rng) for _ in range(rng.choice((0, 1, 2, 5)))]
        label = f"QUOTH_SEED={seed} {columns}"
        other = [Message("other", 1, b"a", None, {})]
        expected = [[*plain.messages_of(*given), *other] for given in columns]
        found = list(batch.chained([batch.chained([batch.messages_of(*given), other]) for given in columns]))
        assert found == list(plain.chained(expected)), label
        assert {Message}.issuperset(map(type, found)), label


def test_an_error_between_two_batches_passes_and_ends_the_messages() -> None:
    messages = batch.chained(parts_of([], fails=True))
    assert [next(messages).value, next(messages).value] == [b"a", b"b"]
    with pytest.raises(KeyError):
        next(messages)
    assert list(messages) == []
    with pytest.raises(TypeError):
        batch.chained(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        next(batch.chained([5]))  # type: ignore[list-item]


@needs_compiled
def test_batches_that_are_asked_for_more_batches_while_they_are_sought_end() -> None:
    """The source of the batches may iterate itself."""
    found: list[Message] = []

    def parts() -> Generator[Iterable[Message], None, None]:
        yield batch.messages_of("t", 1, [b"a"], None, None)
        with pytest.raises(StopIteration):
            next(messages)
        yield batch.messages_of("t", 2, [b"b"], None, None)

    messages = batch.chained(parts())
    found.extend(messages)
    assert [message.value for message in found] == [b"a", b"b"]


def test_an_iterator_that_occurs_twice_is_used_up_once_and_nothing_is_held_at_the_end() -> None:
    one = batch.messages_of("t", 1, [b"a", b"b"], None, None)
    assert [message.value for message in batch.chained([one, one])] == [b"a", b"b"]
    headers: list[dict[str, bytes]] = [{}]
    messages = batch.chained([batch.messages_of("t", 1, [b"a"], None, headers)])
    list(messages)
    references = sys.getrefcount(headers[0])
    assert references == 2, "the list and the argument"
