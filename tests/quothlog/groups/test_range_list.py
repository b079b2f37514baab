"""A list of ranges in small blocks, against a plain list."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kit.scale import times
from quothlog.groups.range_list import RangeList
from quothlog.groups.spans import Span
from quothwire.pointer import POINTER_MAX

LENGTH = 10
"""Pointers of a span that is appended."""


def check(spans: RangeList[Span], expected: list[Span]) -> None:
    """The list has these spans, and finds each of them."""
    assert [*spans] == expected
    assert len(spans) == len(expected)
    assert (spans.first, spans.last) == ((expected[0], expected[-1]) if expected else (None, None))
    for row, span in enumerate(expected):
        for pointer in (span.after + 1, span.until):
            assert spans.between(pointer - 1, POINTER_MAX, 2) == expected[row : row + 2]
    assert spans.between(0, POINTER_MAX) == expected


@settings(max_examples=times(60, 3_000))
@given(st.data(), st.integers(2, 5))
def test_blocks_are_one_list(data: st.DataObject, block_max: int) -> None:
    spans, expected = RangeList[Span](block_max), list[Span]()
    row = st.integers(0, 2**16)
    for number in range(data.draw(st.integers(1, 40))):
        match (
            data.draw(st.sampled_from(["append", "append", "divide", "narrow", "remove"])) if expected else ""
        ):
            case "append" | "":
                expected.append(Span(number * LENGTH, (number + 1) * LENGTH, 1))
                spans.append(expected[-1])
            case "divide":
                at = data.draw(row) % len(expected)
                whole = expected[at]
                middle = (whole.after + whole.until) // 2
                bounds = ((whole.after, middle), (middle, whole.until))
                parts = [Span(low, high, 1) for low, high in bounds if low < high]
                expected[at : at + 1] = parts
                spans.replace(spans.place(whole.until), 1, parts)
            case "narrow":
                span = expected[data.draw(row) % len(expected)]
                if span.until - span.after > 1:
                    place = spans.place(span.until)
                    span.until -= 1
                    spans.replace(place, 1, [span])
            case "remove":
                removed = sorted(data.draw(st.sets(st.integers(0, len(expected) - 1))))
                spans.remove([expected[one] for one in removed])
                expected = [span for at, span in enumerate(expected) if at not in removed]
        check(spans, expected)


def test_spans_between_two_pointers_overlap_them() -> None:
    spans = RangeList[Span](2)
    made = [Span(after, after + 5, 1) for after in range(0, 100, 10)]
    for span in made:
        spans.append(span)
    assert spans.between(5, 10) == []
    assert spans.between(4, 11) == made[:2]
    assert spans.between(95, POINTER_MAX) == []
    assert spans.between(0, POINTER_MAX, 3) == made[:3]
    assert spans.place(96) > spans.place(95)
