"""Quoth's Python client: publish, get a pointer, pull by cursor.

import quoth

with quoth.connect("tcp://127.0.0.1:5555") as client:
    ack = client.publish("orders", [b"one", b"two"])
    for message in client.read("orders", after=0):
        print(message.pointer, message.time, message.value)
"""

from quoth.batch import Batch, Messages, StoredBatch
from quoth.client import Client, connect
from quoth.cursor import Cursor, Position
from quoth.message import Ack, Gap, Message, Stretch
from quoth.outgoing import Failure, ProducerError
from quoth.producer import Producer
from quoth.reading import Reading
from quoth.transaction import PartWriter, Transaction
from quothwire.errors import (
    BrokerFailure,
    Conflict,
    Damaged,
    Disconnected,
    NotFound,
    QuothError,
    RequestError,
    Unavailable,
)
from quothwire.message import Advance, Count, Status, TopicInfo, TransactionInfo, Trimmed
from quothwire.transaction import StagedPart

__all__ = [
    "Ack",
    "Advance",
    "Batch",
    "BrokerFailure",
    "Client",
    "Conflict",
    "Count",
    "Cursor",
    "Damaged",
    "Disconnected",
    "Failure",
    "Gap",
    "Message",
    "Messages",
    "NotFound",
    "PartWriter",
    "Position",
    "Producer",
    "ProducerError",
    "QuothError",
    "Reading",
    "RequestError",
    "StagedPart",
    "Status",
    "StoredBatch",
    "Stretch",
    "TopicInfo",
    "Transaction",
    "TransactionInfo",
    "Trimmed",
    "Unavailable",
    "connect",
]
