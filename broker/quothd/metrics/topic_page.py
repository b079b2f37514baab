"""Selects the topics of one reply about metrics, by what its client may see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from quothd.access.rights import KnownClient
from quothd.access.topic_scope import TopicScope
from quothd.metrics.broker_metrics import ChangeOrder
from quothd.metrics.topic_row import Groups, KnownTopic, row_bytes, row_of
from quothwire.protocol.messages import Operation
from quothwire.protocol.metric_messages import GetMetrics


class TopicSelection(NamedTuple):
    """Topics for a reply, as far as they fit in. serial, more: of the reply if all of them do."""

    topics: Iterable[KnownTopic]
    serial: int
    more: bool = False


class TopicPage(NamedTuple):
    """The part of a reply that is about topics. See `Metrics`."""

    rows: list[dict[str, Any]]
    serial: int
    more: bool


def newest_serial(visible: Iterable[KnownTopic], order: ChangeOrder[Any]) -> int:
    """Return the serial of the last change of some topics: that of no change if there are none."""
    return max((one.serial for one in visible), default=order.start)


def changed_in_all(order: ChangeOrder[Any], since: int) -> TopicSelection:
    """Select the topics that have changed since, for a client that sees all."""
    changed, reached = order.since(since)
    return TopicSelection(changed, reached, reached < order.serial)


def changed_among(visible: list[Any], order: ChangeOrder[Any], since: int) -> TopicSelection:
    """Select those of a few topics that have changed since. Other topics leave no trace in the serial."""
    changed = sorted((one for one in visible if one.serial > since), key=lambda one: one.serial)
    return TopicSelection(changed, newest_serial(visible, order))


def changed_within(scope: TopicScope, order: ChangeOrder[Any], since: int) -> TopicSelection:
    """Select those of many topics that have changed since.

    Once nothing is left, the serial is that of the last one, and `since` where there was none.
    """
    changed, reached = order.since(since)
    changed = [one for one in changed if one.name in scope]
    if reached < order.serial:
        return TopicSelection(changed, reached, more=True)
    return TopicSelection(changed, changed[-1].serial if changed else since)


def page_of(
    selection: TopicSelection, request: GetMetrics, client: KnownClient | None, room: int
) -> TopicPage:
    """Return the rows that fit into a reply of so many bytes, at least one."""
    rows: list[dict[str, Any]] = []
    serial = request.since or selection.serial
    for topic in selection.topics:
        groups = _visible_groups(topic, client)
        room -= row_bytes(topic, groups)
        if len(rows) == request.limit or (room < 0 and rows):
            return TopicPage(rows, serial, more=True)
        rows.append(row_of(topic, groups))
        serial = topic.serial if request.since else serial
    return TopicPage(rows, selection.serial, selection.more)


def _visible_groups(topic: KnownTopic, client: KnownClient | None) -> Groups:
    """Return the groups of a topic, none for a client that may not list them."""
    may_list = client is None or client.may(Operation.LIST_GROUPS, topic.name)
    return topic.groups if may_list else ()
