"""Finds out when a group has something to hand out, for the fetches that find nothing."""

from __future__ import annotations

from typing import NamedTuple

from quothd.requests.pending_request import PendingRequest
from quothd.topics.metadata import TopicMetadata
from quothlog.groups.group_state import GroupState
from quothlog.storage.clock import Clock
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.group_messages import GroupFetch
from quothwire.protocol.group_settings import CURSOR
from quothwire.topic import check_size

MEMBER_BYTES_MAX = 200


class Readiness(NamedTuple):
    """The time from which a group may have something, or the pointer above which records are something.

    at: monotonic.
    """

    at: float
    after: int


def readiness_of(group: GroupState, newest: int, in_flight_max: int, now: float) -> Readiness:
    """Find out when a group may have something. newest: the pointer of the newest record of its topic.

    in_flight_max: the bound of the broker.
    """
    step = group.next_hand_out(1, in_flight_max, now)
    if step is None:
        return Readiness(group.waits_until(now), POINTER_MAX)
    is_ready = step.span is not None or group.cursor < newest
    return Readiness(now if is_ready else group.waits_until(now), max(group.cursor, newest))


def finds_nothing(
    metadata: TopicMetadata, request: PendingRequest, newest: int, in_flight_max: int, clock: Clock
) -> bool:
    """Return True for a fetch that finds nothing in a topic that hibernates, so that it need not be opened.

    Then it has what it waits for, and its member counts as seen. Raises what the codec does, and
    ``bad_request``.
    """
    groups, now = metadata.groups, clock.monotonic()
    asked: GroupFetch = request.decode()
    group = groups.by_name.get(asked.group) if groups is not None else None
    if group is None or group.settings.mode == CURSOR:
        return False
    readiness = readiness_of(group, newest, in_flight_max, now)
    if readiness.at <= now:
        return False
    check_member(asked.member)
    request.begin_group_fetch(now)
    group.members.see(asked.member, now)
    group.used = clock.now()
    request.retry, request.after = readiness
    return True


def check_member(name: str) -> None:
    """Raise ``bad_request`` for a name that is too long. Empty is that of a member without one."""
    if name:
        check_size(name, "member's", MEMBER_BYTES_MAX, "bad_request")
