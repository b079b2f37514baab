"""Who asks what, and what answers it: every request and every reply by its operation."""

from __future__ import annotations

from typing import Any

from quothwire.protocol.messages import (
    AbortTransaction,
    Advance,
    AdvanceTopic,
    Count,
    CountTopic,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    Fetch,
    Fetched,
    GetStatus,
    GetTransaction,
    Hello,
    ListTopics,
    Operation,
    Parts,
    Ping,
    Pong,
    Publish,
    Published,
    PublishStaged,
    RollTopic,
    SplitTopic,
    Stage,
    Staged,
    Status,
    TopicInfo,
    Topics,
    TransactionInfo,
    Trimmed,
    TrimTopic,
    UpdateTopic,
    Welcome,
)

Request = (
    Hello
    | Ping
    | Publish
    | Fetch
    | ListTopics
    | DescribeTopic
    | CreateTopic
    | UpdateTopic
    | DeleteTopic
    | TrimTopic
    | RollTopic
    | GetStatus
    | AdvanceTopic
    | SplitTopic
    | CountTopic
    | Stage
    | PublishStaged
    | AbortTransaction
    | GetTransaction
)
Reply = (
    Welcome
    | Pong
    | Published
    | Fetched
    | Topics
    | TopicInfo
    | Trimmed
    | Status
    | Advance
    | Parts
    | Count
    | Staged
    | TransactionInfo
)

REQUESTS: dict[Operation, type[Any]] = {
    request.operation: request
    for request in (
        Hello, Ping, Publish, Fetch, ListTopics, DescribeTopic,
        CreateTopic, UpdateTopic, DeleteTopic, TrimTopic, RollTopic, GetStatus,
        AdvanceTopic, SplitTopic, CountTopic,
        Stage, PublishStaged, AbortTransaction, GetTransaction,
    )
}  # fmt: skip
WITHOUT_TOPIC = frozenset((Operation.HELLO, Operation.PING, Operation.LIST, Operation.STATUS))
"""What is asked of the broker as a whole: the frame of the topic is empty."""
WITH_PAYLOAD = frozenset((Operation.PUBLISH, Operation.STAGE, Operation.PUBLISH_STAGED))
"""What may bring a fourth frame."""

REPLIES: dict[Operation, type[Any]] = {
    Operation.HELLO: Welcome,
    Operation.PING: Pong,
    Operation.PUBLISH: Published,
    Operation.FETCH: Fetched,
    Operation.LIST: Topics,
    Operation.DESCRIBE: TopicInfo,
    Operation.CREATE: TopicInfo,
    Operation.UPDATE: TopicInfo,
    Operation.DELETE: Trimmed,
    Operation.TRIM: Trimmed,
    Operation.ROLL: TopicInfo,
    Operation.STATUS: Status,
    Operation.ADVANCE: Advance,
    Operation.SPLIT: Parts,
    Operation.COUNT: Count,
    Operation.STAGE: Staged,
    Operation.PUBLISH_STAGED: Published,
    Operation.ABORT: TransactionInfo,
    Operation.TRANSACTION: TransactionInfo,
}
