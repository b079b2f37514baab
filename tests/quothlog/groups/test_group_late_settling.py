"""Members that settle records whose lease they have lost: the records stay where the group finds them."""

from __future__ import annotations

import pytest

from quothlog.groups.group_state import GivenLease, GroupState
from quothlog.groups.selection import ChosenRecords
from quothlog.groups.spans import Extents
from quothwire.protocol.group_settings import GroupSettings

TOKEN = 77
FIRST, LAST = 5, 10
"""The records that are handed out; the pointers in front of them have none."""


def leased(**settings: object) -> GroupState:
    """A group whose only records are under a lease until the time 5."""
    group = GroupState(1, "g", GroupSettings.of({"backoff": [0.0], **settings}), 0)
    group.members.see("m", 0.0)
    chosen = ChosenRecords(LAST - FIRST + 1, LAST, 6, Extents(0, [FIRST], [LAST]), [])
    group.lease_new(chosen, GivenLease(TOKEN, "m", 5.0))
    return group


@pytest.mark.parametrize(("first", "last"), [(FIRST, LAST), (FIRST, 7), (7, 8), (9, LAST), (1, LAST)])
def test_a_late_nack_leaves_every_record_to_be_handed_out_again(first: int, last: int) -> None:
    """A record that no member has is found again, however the row of the late member cuts its range."""
    group = leased()
    group.expire(10.0)
    assert group.find(first, last, TOKEN) == []
    again: list[int] = []
    while (step := group.next_hand_out(100, 1_000, 10.0)) is not None and step.span is not None:
        low, high = step.span.extents.clip(step.after, step.until) if step.span.extents else (0, 0)
        again += range(low, high + 1)
        group.finish([step.span])
    assert again == [*range(FIRST, LAST + 1)]


def test_a_late_nack_leaves_a_dead_letter_that_is_found_again() -> None:
    group = leased(max_attempts=1)
    group.expire(10.0)
    span = group.next_dying()
    assert span is not None
    chosen = ChosenRecords(LAST - FIRST + 1, LAST, 6, Extents(FIRST - 1, [FIRST], [LAST]), [])
    group.find(FIRST, LAST, TOKEN)
    span = group.next_dying()
    assert span is not None
    part = group.cut_dying(span, LAST, chosen)
    assert group.next_dying() is part
