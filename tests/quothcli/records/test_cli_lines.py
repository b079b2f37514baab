"""Lines of a stream do not depend on its portions; only the newline is removed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.machine.processes import peak_of
from quothcli.records.record_parser import portions
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


PARTS = st.sampled_from([b"", b"a", b"\n", b"bc\r", b"\n\n", b"\xff", b"\x0b\x1c\x85", b"\xe2\x80\xa8"])


@given(st.lists(PARTS), st.integers(1, 9))
def test_any_content_is_split_at_its_newlines(parts: list[bytes], step: int) -> None:
    content = b"".join(parts)
    *lines, rest = content.split(b"\n")
    found = list(portions(Trickle(content, step)))
    assert all(found), "an empty portion"
    assert [line for part in found for line in part] == [*lines, *([rest] if rest else [])]


def test_lines_are_handed_on_before_more_is_read() -> None:
    stream = Trickle(b"one\ntwo\nthr", 4)
    found = portions(stream)
    assert next(found) == [b"one"]
    assert stream.asked == 1


LONG = b"x" * 11


def test_line_that_no_record_can_hold_is_refused_with_its_number() -> None:
    for content, number in (
        (LONG, 1),
        (b"a\nb\n" + LONG, 3),
        (b"a\n" + LONG + b"\nb\n", 2),
        (LONG + b"\n", 1),
    ):
        for step in (1, 5, 100):
            with pytest.raises(RequestError, match=f"line {number} ") as caught:
                list(portions(Trickle(content, step), longest=10, block_bytes=8))
            assert caught.value.code == "too_large"
    content = b"x" * 10 + b"\n" + b"y" * 10
    assert list(portions(Trickle(content, 3), longest=10))[-1] == [b"y" * 10]


def test_line_that_comes_byte_by_byte_is_held_once() -> None:
    assert peak_of(lambda: list(portions(Trickle(b"x" * 50_000, 1)))) < 5 * 50_000


def test_endless_line_is_refused_early() -> None:
    """/dev/zero has no newline: memory must not grow until the machine has none left."""
    stream = Trickle(b"\0" * 1_000_000, 100)
    with pytest.raises(RequestError):
        list(portions(stream, longest=1_000))
    assert stream.asked == 11
