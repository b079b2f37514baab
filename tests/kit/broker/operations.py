"""A request of every operation on a topic, as the front end gives it to one."""

from __future__ import annotations

from collections.abc import Callable

from kit.broker.open_topic import pending
from kit.broker.transactions import LOADER, part_of, staged
from kit.disk.logs import encoded
from quothd.requests.pending_request import PendingRequest
from quothwire.protocol import messages
from quothwire.protocol.transaction import encode_parts

VALUES = [b"one", b"two"]


def publish(durability: str, *values: bytes) -> PendingRequest:
    """A publish of these values, `VALUES` without any."""
    return pending(messages.Publish(durability), encoded(values or VALUES))


def publish_staged(*values: bytes) -> PendingRequest:
    """The publication of a part with one batch of these values, `VALUES` without any."""
    return pending(messages.PublishStaged(LOADER, 1, 1), encode_parts([part_of(0, 7, [values or VALUES])]))


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
    "delete": lambda: pending(messages.DeleteTopic()),
}
"""By their names; a topic does not handle the creation of one."""
