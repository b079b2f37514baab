"""Lines of a stream do not depend on its portions; only the newline is removed."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quothcli.records.lines import portions
from quothwire.errors import RequestError


class Trickle:
    """A stream that returns at most so many bytes at a time."""

    def __init__(self, content: bytes, step: int) -> None:
        self._content = content
        self._step = step
        self.asked = 0

    def read1(self, size: int, /) -> bytes:
        """Return the next bytes."""
        self.asked += 1
        step = min(size, self._step)
        taken, self._content = self._content[:step], self._content[step:]
        return taken


def expected(content: bytes) -> list[bytes]:
    """Split at newlines; a newline at the end begins no further line."""
    parts = content.split(b"\n")
    return parts if parts[-1] else parts[:-1]


CASES = {
    "empty": b"",
    "a newline": b"\n",
    "empty lines": b"\n\n\n",
    "no newline at the end": b"one\ntwo",
    "a newline at the end": b"one\ntwo\n",
    "carriage returns": b"one\r\ntwo\r\n",
    "other separators": b"a\x0bb\x0cc\x1cd\x85e\xe2\x80\xa8f\n",
    "binary": bytes(range(256)) * 3,
}


@pytest.mark.parametrize("step", [1, 2, 7, 10_000])
@pytest.mark.parametrize("content", CASES.values(), ids=CASES)
def test_lines_do_not_depend_on_portions(content: bytes, step: int) -> None:
    found = list(portions(Trickle(content, step)))
    assert all(found), "an empty portion"
    assert [line for part in found for line in part] == expected(content)


@given(st.lists(st.sampled_from([b"", b"a", b"\n", b"bc\r", b"\n\n", b"\xff"])), st.integers(1, 9))
def test_any_content_is_split_at_its_newlines(parts: list[bytes], step: int) -> None:
    content = b"".join(parts)
    assert [line for part in portions(Trickle(content, step)) for line in part] == expected(content)


def test_lines_are_handed_on_before_more_is_read() -> None:
    stream = Trickle(b"one\ntwo\nthr", 4)
    found = portions(stream)
    assert next(found) == [b"one"]
    assert stream.asked == 1


@pytest.mark.parametrize("step", [1, 5, 100])
@pytest.mark.parametrize(
    ("content", "number"),
    [(b"x" * 11, 1), (b"a\nb\n" + b"x" * 11, 3), (b"a\n" + b"x" * 11 + b"\nb\n", 2), (b"x" * 11 + b"\n", 1)],
)
def test_line_that_no_record_can_hold_is_refused_with_its_number(
    content: bytes, number: int, step: int
) -> None:
    with pytest.raises(RequestError) as caught:
        list(portions(Trickle(content, step), longest=10, block_bytes=8))
    assert caught.value.code == "too_large"
    assert f"line {number} " in caught.value.text


def test_longest_line_is_taken() -> None:
    content = b"x" * 10 + b"\n" + b"y" * 10
    assert list(portions(Trickle(content, 3), longest=10))[-1] == [b"y" * 10]


def test_line_that_comes_byte_by_byte_is_held_once() -> None:
    tracemalloc.start()
    try:
        (found,) = [line for portion in portions(Trickle(b"x" * 50_000, 1)) for line in portion]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == b"x" * 50_000
    assert peak < 5 * len(found)


def test_endless_line_is_refused_early() -> None:
    """/dev/zero has no newline: memory must not grow until the machine has none left."""
    stream = Trickle(b"\0" * 1_000_000, 100)
    with pytest.raises(RequestError):
        list(portions(stream, longest=1_000))
    assert stream.asked == 11
