"""Spans against the set of pointers that they stand for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from kit.scale import times
from quothlog.groups.spans import Extents, Lease, Span, SpanState, SpanTable

HIGHEST = 60
EXAMPLES = times(300, 5_000)


@st.composite
def batches(draw: st.DrawFn, low: int = 1, high: int = HIGHEST) -> list[tuple[int, int]]:
    """The first and the last pointer of some batches, in order."""
    edges = sorted(draw(st.sets(st.integers(low, high), min_size=2, max_size=12)))
    found = []
    for first, last in zip(edges[::2], edges[1::2], strict=False):
        found.append((first, last) if draw(st.booleans()) else (first, first))
    return found


def extents_of(found: Iterable[tuple[int, int]], start: int = 0) -> Extents:
    rows = [*found]
    return Extents(start, [first for first, _ in rows], [last for _, last in rows])


def pointers_of(found: Iterable[tuple[int, int]]) -> list[int]:
    return [pointer for first, last in found for pointer in range(first, last + 1)]


bounds = st.tuples(st.integers(0, HIGHEST + 1), st.integers(0, HIGHEST + 1)).map(sorted)


@settings(max_examples=EXAMPLES)
@given(batches(), bounds)
def test_extents_answer_as_a_list_of_pointers_does(found: list[tuple[int, int]], between: list[int]) -> None:
    after, until = between
    extents, pointers = extents_of(found), pointers_of(found)
    assert [*extents.pointers()] == pointers
    inside = [pointer for pointer in pointers if after < pointer <= until]
    assert extents.count(after, until) == len(inside)
    assert extents.clip(after, until) == ((inside[0], inside[-1]) if inside else (0, 0))
    lead = extents.lead(after)
    assert lead <= after
    assert not [pointer for pointer in pointers if lead < pointer <= after]
    part = extents.part(after, until)
    assert [*part.pointers()] == pointers or {*part.pointers()} >= {*inside}
    assert part.count(after, until) == len(inside)
    assert part.lead(after) >= lead


@dataclass
class Shadow:
    """A table of spans, and the set of the pointers of its records; they are to tell the same."""

    table: SpanTable = field(default_factory=SpanTable)
    left: set[int] = field(default_factory=set)
    leases: dict[int, Lease] = field(default_factory=dict)

    def add(self, found: list[tuple[int, int]], after: int, until: int, *, is_known: bool) -> None:
        lease = Lease(after, "m", 1.0, after, until)
        extents = extents_of(found, after) if is_known else None
        self.table.append(Span(after, until, 1, SpanState.LEASED, lease, extents))
        self.left |= {*pointers_of(found)} if is_known else {*range(after + 1, until + 1)}
        self.leases[after] = lease

    def check(self) -> None:
        spans = [*self.table]
        covered: list[int] = []
        for span in spans:
            everything = (
                range(span.after + 1, span.until + 1) if span.extents is None else span.extents.pointers()
            )
            within = [pointer for pointer in everything if span.after < pointer <= span.until]
            assert within, "a span has records"
            covered += within
            assert span.records == (len(within) if span.extents is not None else -1)
            assert span.state is not SpanState.GONE
        assert covered == sorted(self.left)
        assert all(one.until <= other.after for one, other in pairwise(spans))
        assert self.table.known == sum(span.records for span in spans if span.extents is not None)
        assert self.table.unknown == sum(span.extents is None for span in spans)
        for lease in self.leases.values():
            having = [span for span in spans if span.lease is lease]
            assert lease.spans == len(having)
            assert all(lease.after <= span.after and span.until <= lease.until for span in having)


@st.composite
def tables(draw: st.DrawFn) -> Shadow:
    """A table of a few spans, each with a lease."""
    shadow, after = Shadow(), 0
    for row in range(draw(st.integers(1, 3))):
        found = draw(batches(20 * row + 1, 20 * row + 20))
        until = draw(st.integers(found[-1][1], 20 * row + 20))
        shadow.add(found, after, until, is_known=draw(st.booleans()))
        after = draw(st.integers(until, 20 * row + 20))
    return shadow


@settings(max_examples=EXAMPLES)
@given(tables(), st.lists(st.tuples(bounds, st.booleans()), max_size=8))
def test_cuts_and_removals_keep_every_other_record(
    shadow: Shadow, cuts: list[tuple[list[int], bool]]
) -> None:
    shadow.check()
    for (after, until), is_finished in cuts:
        before = [*shadow.table]
        inside, made = shadow.table.cut(after, until)
        wanted = {pointer for pointer in shadow.left if after < pointer <= until}
        assert not wanted or inside
        assert made == [span for span in shadow.table if span not in before]
        overlapping = shadow.table.overlapping(after, until)
        assert [span for span in overlapping if after <= span.after and span.until <= until] == inside
        shadow.check()
        if is_finished:
            for span in inside:
                assert span.lease is not None
                span.lease.spans -= 1
            shadow.table.remove(inside)
            shadow.left -= wanted
            shadow.check()
            assert all(span.state is SpanState.GONE for span in inside)


@settings(max_examples=EXAMPLES)
@given(tables(), st.integers(0, HIGHEST), st.integers(1, 3))
def test_a_page_of_spans_begins_behind_the_last_record_of_the_page_before(
    shadow: Shadow, after: int, limit: int
) -> None:
    """A listing by pages comes to an end."""
    page = shadow.table.above(after, limit)
    assert len(page) <= limit
    for span in page:
        assert any(pointer > after for pointer in shadow.left if span.after < pointer <= span.until)
    first = next((pointer for pointer in sorted(shadow.left) if pointer > after), None)
    assert (first is not None) == bool(page)
    assert first is None or page[0].after < first <= page[0].until


@settings(max_examples=EXAMPLES)
@given(batches(), st.lists(bounds, max_size=30))
def test_spans_are_no_more_than_the_gaps_between_them(
    found: list[tuple[int, int]], acks: list[list[int]]
) -> None:
    """Acknowledgements in any order: pieces that are next to each other are not counted twice."""
    shadow = Shadow()
    shadow.add(found, 0, HIGHEST, is_known=True)
    pointers = pointers_of(found)
    for after, until in acks:
        inside, _ = shadow.table.cut(after, until)
        shadow.table.remove(inside)
        shadow.left -= {*range(after + 1, until + 1)}
        before = [False, *(pointer in shadow.left for pointer in pointers)]
        runs = sum(not one and other for one, other in pairwise(before))
        assert len(shadow.table) == runs
