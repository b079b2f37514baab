"""The keys of the last span."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quothrules.evaluation.recent_keys import RecentKeys

ROWS = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(1, 6)), max_size=40)


def filled(rows: list[tuple[bytes, int]], keys_max: int) -> RecentKeys:
    keys = RecentKeys(10, keys_max)
    for key, pointer in rows:
        keys.see(key, pointer)
    return keys


@given(ROWS, st.integers(1, 5))
def test_the_records_of_the_last_span_are_all_that_counts(
    rows: list[tuple[bytes, int]], keys_max: int
) -> None:
    """The keys can therefore be rebuilt from the topic, however many of them are kept."""
    placed, pointer = [], 0
    for key, step in rows:
        pointer += step
        placed.append((key, pointer))
    whole = filled(placed, keys_max)
    here = pointer + 1
    rebuilt = filled([row for row in placed if row[1] >= here - 10], keys_max)
    for key in (b"a", b"b", b"c", b"d"):
        assert rebuilt.has(key, here) == whole.has(key, here)
        newest = max((at for one, at in placed if one == key), default=None)
        if keys_max >= 4:
            assert whole.has(key, here) == (newest is not None and here - newest <= 10)
    assert len(whole) <= min(keys_max, 4)


def test_keys_that_were_not_seen_for_longest_are_forgotten() -> None:
    keys = filled([(b"a", 1), (b"b", 2), (b"a", 3), (b"c", 4)], 2)
    assert [keys.has(key, 5) for key in (b"a", b"b", b"c")] == [True, False, True]


def test_memory_ends_with_the_span() -> None:
    keys = filled([(b"%d" % number, number) for number in range(1_000)], 10_000)
    assert len(keys) == 11
