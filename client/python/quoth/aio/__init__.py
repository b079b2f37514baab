"""Quoth's client for asyncio: `quoth`, with the same names, arguments, results and errors.

import asyncio
import quoth.aio

async def main():
    async with quoth.aio.connect("tcp://127.0.0.1:5555") as client:
        await client.publish("orders", [b"one", b"two"])
        async for message in client.tail("orders", after=0):
            print(message.pointer, message.time, message.value)

asyncio.run(main())
"""

from quoth.aio.client import Client, connect
from quoth.aio.groups.cursor import NamedCursor
from quoth.aio.groups.group import ConsumerGroup, GroupBatch, GroupIteration, GroupMessage
from quoth.aio.iterators import Batches, Tail
from quoth.aio.producer import Producer
from quoth.aio.reading import Portions, Reading
from quoth.aio.transaction import PartWriter, Transaction

__all__ = [
    "Batches",
    "Client",
    "ConsumerGroup",
    "GroupBatch",
    "GroupIteration",
    "GroupMessage",
    "NamedCursor",
    "PartWriter",
    "Portions",
    "Producer",
    "Reading",
    "Tail",
    "Transaction",
    "connect",
]
