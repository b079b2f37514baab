"""The request and the reply of every operation."""

from __future__ import annotations

from dataclasses import Field
from typing import Any, ClassVar, Protocol

from quothwire.protocol import messages
from quothwire.protocol.messages import Operation
from quothwire.protocol.value import Value


class Request(Protocol):
    """A message that asks for an operation."""

    operation: ClassVar[Operation]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


Reply = Value
"""A message that answers a request."""

_REPLY_TO: dict[type[Any], type[Any]] = {
    messages.Hello: messages.Welcome,
    messages.Ping: messages.Pong,
    messages.Publish: messages.Published,
    messages.Fetch: messages.Fetched,
    messages.ListTopics: messages.Topics,
    messages.DescribeTopic: messages.TopicInfo,
    messages.CreateTopic: messages.TopicInfo,
    messages.UpdateTopic: messages.TopicInfo,
    messages.DeleteTopic: messages.Trimmed,
    messages.TrimTopic: messages.Trimmed,
    messages.RollTopic: messages.TopicInfo,
    messages.GetStatus: messages.Status,
    messages.AdvanceTopic: messages.Advance,
    messages.SplitTopic: messages.Parts,
    messages.CountTopic: messages.Count,
    messages.Stage: messages.Staged,
    messages.PublishStaged: messages.Published,
    messages.AbortTransaction: messages.TransactionInfo,
    messages.GetTransaction: messages.TransactionInfo,
}
REQUESTS: dict[Operation, type[Any]] = {request.operation: request for request in _REPLY_TO}
REPLIES: dict[Operation, type[Any]] = {request.operation: reply for request, reply in _REPLY_TO.items()}

WITHOUT_TOPIC = frozenset((Operation.HELLO, Operation.PING, Operation.LIST, Operation.STATUS))
"""The operations on the broker as a whole. The frame of the topic is empty."""
WITH_PAYLOAD = frozenset((Operation.PUBLISH, Operation.STAGE, Operation.PUBLISH_STAGED))
"""The operations whose request may have a fourth frame."""
