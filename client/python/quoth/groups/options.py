"""The arguments of a group: where it begins, its settings, the name of its member."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

from quoth.core.options import as_seconds
from quoth.message import OnGap
from quoth.timestamps import Timestamp, as_pointer
from quothwire.errors import error
from quothwire.pointer import check_pointer
from quothwire.protocol.group_messages import END
from quothwire.protocol.group_settings import LEASE_S_MAX, GroupSettings, as_sent, check_group
from quothwire.topic import check_size, check_topic

MEMBER_BYTES_MAX = 200
CONCURRENCY_MAX = 1_000
PLACES = {"begin": 0, "end": END}
"""Places in a topic that have a name: in front of its oldest record, and behind its newest one."""
_NAME_CHARACTERS_MAX = 60
_members = count(1)


class GroupOptions(NamedTuple):
    """The arguments of `group`, checked.

    start: see `OpenGroup`. settings: those that were named, as the wire has them. create: create the group at
    its first use if there is none.
    """

    topic: str
    name: str
    start: int
    settings: dict[str, Any]
    member: str
    create: bool
    on_gap: OnGap | None


class SubscriptionOptions(NamedTuple):
    """The arguments of `subscribe`, checked."""

    group: GroupOptions
    concurrency: int


def group_options(
    topic: str,
    name: str,
    start: Timestamp,
    settings: Mapping[str, Any],
    *,
    member: str | None = None,
    create: bool = True,
    on_gap: OnGap | None = None,
) -> GroupOptions:
    """Check the arguments of a group. Raises `RequestError`."""
    check_topic(topic)
    check_group(name)
    sent = as_sent(settings)
    GroupSettings.of(sent)
    if member is None:
        member = default_member()
    elif not isinstance(member, str):
        raise error("bad_request", f"the name of a member is text, not {member!r:.100}")
    check_size(member, "member's", MEMBER_BYTES_MAX, "bad_request")
    return GroupOptions(topic, name, place(start), sent, member, create, on_gap)


def subscription_options(options: GroupOptions, concurrency: int) -> SubscriptionOptions:
    """Check the arguments of a subscription. Raises `RequestError` ``bad_request``."""
    is_number = isinstance(concurrency, int) and not isinstance(concurrency, bool)
    if not is_number or not 0 < concurrency <= CONCURRENCY_MAX:
        text = f"concurrency is a number from 1 to {CONCURRENCY_MAX}, not {concurrency!r:.100}"
        raise error("bad_request", text)
    return SubscriptionOptions(options, concurrency)


def place(where: Timestamp) -> int:
    """Return the pointer above which a group goes on, `END` for the end.

    where: ``begin``, ``end``, a pointer, which is excluded as `after` of a read is, or a time, which is
    included as `since` is. Raises `RequestError` ``bad_pointer``.
    """
    if isinstance(where, str) and where in PLACES:
        return PLACES[where]
    if isinstance(where, int):
        return check_pointer(where)
    return max(0, as_pointer(where) - 1)


def default_author() -> str:
    """Return ``user@host`` of this process."""
    user = str(os.getuid())
    with suppress(KeyError, OSError):  # no such user in the system's table
        user = getpass.getuser()
    return f"{user[:_NAME_CHARACTERS_MAX]}@{socket.gethostname()[:_NAME_CHARACTERS_MAX]}"


def default_member() -> str:
    """Return ``user@host:pid-number``; the number counts the members of this process."""
    return f"{default_author()}:{os.getpid()}-{next(_members)}"


def as_milliseconds(given: float, what: str) -> int:
    """Return a number of seconds in milliseconds. Raises ``bad_request`` above twelve hours."""
    seconds = as_seconds(given, what)
    if seconds > LEASE_S_MAX:
        raise error("bad_request", f"{what} is at most {LEASE_S_MAX:.0f} seconds, not {given!r}")
    return round(seconds * 1_000)


def as_reason(given: str) -> str:
    """Return a reason as it is sent: what is no Unicode in it is escaped. Raises ``bad_request``."""
    if not isinstance(given, str):
        raise error("bad_request", f"reason is text, not {given!r:.100}")
    return given.encode(errors="backslashreplace").decode()


def reason_of(problem: BaseException) -> str:
    """Return the reason of a nack for an error."""
    kind = type(problem).__name__
    try:
        return as_reason(f"{kind}: {problem}")
    except Exception:  # of its conversion to text
        return kind
