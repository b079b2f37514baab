"""The calls of a client about consumer groups: their arguments, checked, for both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from quoth.core.calls import ClientState, ask
from quoth.core.request_state import ClientCall
from quoth.message import OnGap
from quoth.timestamps import Timestamp
from quothwire.protocol.group_messages import Groups, ListGroups
from quothwire.protocol.group_settings import CURSOR, GivenGroupSettings
from quothwire.topic import check_topic

if TYPE_CHECKING:
    from quoth.groups.options import GroupOptions, SubscriptionOptions


class GroupSummary(NamedTuple):
    """One group in a list: the fields of `GroupInfo` that need no read of the log."""

    group: str
    settings: dict[str, Any]
    generation: int
    paused: bool
    after: int
    cursor: int
    in_flight: int
    redelivered: int
    dead: int
    gone: int
    idle: float
    problem: str


def group(
    _: ClientState,
    topic: str,
    name: str,
    *,
    start: Timestamp = "begin",
    member: str | None = None,
    create: bool = True,
    on_gap: OnGap | None = None,
    **settings: Unpack[GivenGroupSettings],
) -> GroupOptions:
    """Return a member of a consumer group: the members of a group share the records of the topic.

    The group is created by the first use, with these settings and the defaults for the others, see
    `quothwire.protocol.group_settings.GroupSettings`: ``client.group("orders", "billing", lease="1m")``. One
    that exists has to have the settings that are named.

    start: where a new group begins: ``begin``, ``end``, above a pointer, or at a time. member: the name that
    the state of the group shows, ``user@host:pid-number`` by default. create: False for ``unknown_group`` if
    there is no such group. on_gap: called with records that were removed, or damaged, before the group could
    hand them out.
    """
    from quoth.groups.options import group_options

    return group_options(topic, name, start, settings, member=member, create=create, on_gap=on_gap)


def cursor(
    _: ClientState, topic: str, name: str, *, start: Timestamp = "begin", create: bool = True
) -> GroupOptions:
    """Return a named cursor: a position in the topic that the broker keeps, and its lag.

    It is created by the first use, at `start`, as a group without leases. start, create: as for `group`.
    """
    from quoth.groups.options import group_options

    return group_options(topic, name, start, {"mode": CURSOR}, create=create)


def subscribe(
    _: ClientState,
    topic: str,
    *,
    group: str,
    concurrency: int = 4,
    start: Timestamp = "begin",
    member: str | None = None,
    on_gap: OnGap | None = None,
    **settings: Unpack[GivenGroupSettings],
) -> SubscriptionOptions:
    """Return a decorator that registers a handler of the records of a group, which `run` executes.

    A record whose handler returns is acknowledged; one whose handler raises an exception is given back, and
    that is logged. A handler may settle its record itself. concurrency: the most handlers that are executed
    at the same time, each in a thread of its own; in an event loop a handler is a coroutine function, and
    each is a task. The other arguments are those of `group`.
    """
    from quoth.groups.options import group_options, subscription_options

    options = group_options(topic, group, start, settings, member=member, on_gap=on_gap)
    return subscription_options(options, concurrency)


def groups(client: ClientState, topic: str) -> ClientCall[list[GroupSummary]]:
    """List the groups and cursors of a topic, in the order of their names' UTF-8 bytes."""
    found: list[GroupSummary] = []
    while True:
        listing = ListGroups(after=found[-1].group if found else "")
        reply = yield from ask(Groups, listing, check_topic(topic), timeout=client.timeout)
        if not reply.groups:
            return found
        found += [GroupSummary(**{name: row[name] for name in GroupSummary._fields}) for row in reply.groups]
