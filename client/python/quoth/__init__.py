"""Quoth's Python client: publish, get a pointer, pull by cursor.

import quoth

with quoth.connect("tcp://127.0.0.1:5555") as client:
    ack = client.publish("orders", [b"one", b"two"])
    for message in client.read("orders", after=0):
        print(message.pointer, message.time, message.value)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quoth.batch import Batch, Messages, StoredBatch
    from quoth.client import Client, connect
    from quoth.core.outgoing import Failure, ProducerError
    from quoth.cursor import Cursor, Position
    from quoth.groups.calls import GroupLag, PendingRange
    from quoth.groups.cursor import NamedCursor
    from quoth.groups.group import ConsumerGroup, GroupBatch, GroupMessage
    from quoth.groups.openings import GroupSummary
    from quoth.groups.subscription import SubscriptionCounts
    from quoth.message import Ack, Gap, Message, PointerRange
    from quoth.message import Stretch as Stretch
    from quoth.producer import Producer
    from quoth.reading import Reading
    from quoth.transaction import PartWriter, Transaction
    from quothwire.errors import (
        AuthError,
        BrokerFailure,
        Conflict,
        Damaged,
        Disconnected,
        NotFound,
        QuothError,
        RequestError,
        Unavailable,
    )
    from quothwire.protocol.group_messages import GroupInfo
    from quothwire.protocol.messages import Advance, Count, Status, TopicInfo, TransactionInfo, Trimmed
    from quothwire.protocol.metric_messages import Metrics
    from quothwire.protocol.transaction import StagedPart
    from quothwire.security.key_file import Key

__all__ = [
    "Ack",
    "Advance",
    "AuthError",
    "Batch",
    "BrokerFailure",
    "Client",
    "Conflict",
    "ConsumerGroup",
    "Count",
    "Cursor",
    "Damaged",
    "Disconnected",
    "Failure",
    "Gap",
    "GroupBatch",
    "GroupInfo",
    "GroupLag",
    "GroupMessage",
    "GroupSummary",
    "Key",
    "Message",
    "Messages",
    "Metrics",
    "NamedCursor",
    "NotFound",
    "PartWriter",
    "PendingRange",
    "PointerRange",
    "Position",
    "Producer",
    "ProducerError",
    "QuothError",
    "Reading",
    "RequestError",
    "StagedPart",
    "Status",
    "StoredBatch",
    "SubscriptionCounts",
    "TopicInfo",
    "Transaction",
    "TransactionInfo",
    "Trimmed",
    "Unavailable",
    "connect",
]

_MODULES = {
    "quoth.batch": ("Batch", "Messages", "StoredBatch"),
    "quoth.client": ("Client", "connect"),
    "quoth.cursor": ("Cursor", "Position"),
    "quoth.groups.calls": ("GroupLag", "PendingRange"),
    "quoth.groups.cursor": ("NamedCursor",),
    "quoth.groups.group": ("ConsumerGroup", "GroupBatch", "GroupMessage"),
    "quoth.groups.openings": ("GroupSummary",),
    "quoth.groups.subscription": ("SubscriptionCounts",),
    "quoth.message": ("Ack", "Gap", "Message", "PointerRange", "Stretch"),
    "quoth.core.outgoing": ("Failure", "ProducerError"),
    "quoth.producer": ("Producer",),
    "quoth.reading": ("Reading",),
    "quoth.transaction": ("PartWriter", "Transaction"),
    "quothwire.errors": (
        "AuthError",
        "BrokerFailure",
        "Conflict",
        "Damaged",
        "Disconnected",
        "NotFound",
        "QuothError",
        "RequestError",
        "Unavailable",
    ),
    "quothwire.protocol.group_messages": ("GroupInfo",),
    "quothwire.protocol.messages": ("Advance", "Count", "Status", "TopicInfo", "TransactionInfo", "Trimmed"),
    "quothwire.protocol.metric_messages": ("Metrics",),
    "quothwire.protocol.transaction": ("StagedPart",),
    "quothwire.security.key_file": ("Key",),
}
"""The module of each name. A module is loaded when one of its names is used: all of them together take longer
than a short program, and most programs use a few."""
_HOME_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
