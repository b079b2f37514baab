"""A request of every operation on a topic, as the front end gives it to one."""

from __future__ import annotations

from collections.abc import Callable

from kit.broker.open_topic import pending
from kit.broker.transactions import LOADER, part_of, staged
from kit.disk.logs import encoded
from quothd.requests.pending_request import PendingRequest
from quothwire.protocol import group_messages as groups
from quothwire.protocol import messages
from quothwire.protocol.settlement import Settle, Settlement, encode_settlements
from quothwire.protocol.transaction import encode_parts

VALUES = [b"one", b"two"]
WORKERS = "workers"
READER = "reader"
"""A group of mode ``cursor``."""


def publish(durability: str, *values: bytes) -> PendingRequest:
    """A publish of these values, `VALUES` without any."""
    return pending(messages.Publish(durability), encoded(values or VALUES))


def publish_staged(*values: bytes) -> PendingRequest:
    """The publication of a part with one batch of these values, `VALUES` without any."""
    return pending(messages.PublishStaged(LOADER, 1, 1), encode_parts([part_of(0, 7, [values or VALUES])]))


def settle_all(kind: Settle, token: int = 0) -> PendingRequest:
    """The settlement of all records of the group ``workers``."""
    row = Settlement(kind, 1, 2**56 - 1, token)
    return pending(groups.GroupSettle(WORKERS, 1), encode_settlements([row]))


OPERATIONS: dict[str, Callable[[], PendingRequest]] = {
    "publish": lambda: publish("written"),
    "publish synced": lambda: publish("synced"),
    "fetch": lambda: pending(messages.Fetch()),
    "fetch and wait": lambda: pending(messages.Fetch(after=2**56 - 1, wait_ms=1_000)),
    "advance": lambda: pending(messages.AdvanceTopic()),
    "split": lambda: pending(messages.SplitTopic()),
    "count": lambda: pending(messages.CountTopic()),
    "describe": lambda: pending(messages.DescribeTopic()),
    "update": lambda: pending(messages.UpdateTopic({"durability": "synced"})),
    "trim": lambda: pending(messages.TrimTopic(2**56 - 1)),
    "roll": lambda: pending(messages.RollTopic()),
    "stage": lambda: pending(messages.Stage(LOADER, 1, 0, 7), staged(VALUES, 1)),
    "publish staged": publish_staged,
    "transaction": lambda: pending(messages.GetTransaction(LOADER, 1)),
    "abort": lambda: pending(messages.AbortTransaction(LOADER, 1)),
    "open group": lambda: pending(groups.OpenGroup(WORKERS)),
    "open cursor": lambda: pending(groups.OpenGroup(READER, settings={"mode": "cursor"})),
    "group fetch": lambda: pending(groups.GroupFetch(WORKERS, "m")),
    "group fetch and wait": lambda: pending(groups.GroupFetch(WORKERS, "n", wait_ms=1_000)),
    "group ack": lambda: settle_all(Settle.ACK),
    "group nack": lambda: settle_all(Settle.NACK, 7),
    "describe group": lambda: pending(groups.DescribeGroup(WORKERS)),
    "list groups": lambda: pending(groups.ListGroups()),
    "update group": lambda: pending(groups.UpdateGroup(WORKERS, {"lease": 60.0})),
    "seek group": lambda: pending(groups.SeekGroup(WORKERS, groups.END)),
    "list pending": lambda: pending(groups.ListPending(WORKERS)),
    "commit cursor": lambda: pending(groups.CommitCursor(READER, 2**56 - 1)),
    "delete group": lambda: pending(groups.DeleteGroup(WORKERS)),
    "delete": lambda: pending(messages.DeleteTopic()),
}
"""By their names; a topic does not handle the creation of one."""
