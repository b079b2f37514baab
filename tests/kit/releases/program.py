"""A client of any release: a program that imports the packages of a client alone, and nothing of the tests.

    PYTHONPATH=RELEASE python program.py record URL      fills a broker, and prints what is in it
    PYTHONPATH=RELEASE python program.py content URL     prints what is in such a broker
    PYTHONPATH=RELEASE python program.py use URL NAME    does everything once, in a topic of that name

The output is one object of JSON. RELEASE is the folder with the code of the release.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import quoth
from quothwire import VERSION

Content = dict[str, Any]
TOPICS = ("orders", "ledger", "sealed", "orders.billing.dead")


def record(client: quoth.Client) -> Content:
    """Write topics with keys and headers, a group with a dead letter, transactions, and sealed segments."""
    client.create_topic("orders", durability="synced", max_bytes="1GiB", size_limit=4_096)
    keys = [None if row % 3 == 0 else b"key %d" % (row % 7) for row in range(40)]
    headers = [{"row": b"%d" % row} if row % 2 else {} for row in range(40)]
    client.publish(
        "orders",
        [b"order %d " % row + bytes([0, row, 255]) + b"." * 240 for row in range(40)],
        key=keys,
        headers=headers,
    )
    for row in range(20):
        client.publish("orders", b"" if row == 7 else b"single %d" % row)
    with client.group("orders", "billing", max_attempts=2, lease=3_600) as group:
        first, second, third, *_ = group.fetch(10)
        first.ack()
        second.term("malformed")
        third.ack()
    _stage(client, 1).publish(_parts(client, 1))
    _parts(client, 2)
    client.create_topic("sealed")
    for part in range(3):
        client.publish("sealed", [b"%d.%d" % (part, row) for row in range(100)])
        client.roll("sealed")
    _wait_for_letter(client, "orders.billing.dead")
    while set(client.topic("sealed").states) != {"h"}:  # it hibernates once it was not asked for a while
        time.sleep(0.1)
    return content(client)


def _stage(client: quoth.Client, version: int) -> quoth.Transaction:
    return client.transaction("ledger", "loader", version)


def _parts(client: quoth.Client, version: int) -> list[quoth.StagedPart]:
    """Stage two parts of a transaction."""
    parts = []
    for number in range(2):
        part = _stage(client, version).part(number)
        part.write([b"%d.%d.%d" % (version, number, row) for row in range(50)])
        parts.append(part.finish())
    return parts


def content(client: quoth.Client) -> Content:
    """Return all that was recorded, as a client sees it."""
    topics = {name: topic(client, name) for name in TOPICS}
    with client.group("orders", "billing") as group:
        info = group.info()
    statuses = [_stage(client, version).status() for version in (1, 2)]
    return {
        "topics": topics,
        "group": {
            name: getattr(info, name) for name in ("after", "cursor", "lag", "dead", "generation", "settings")
        },
        "transactions": [[one.state, one.first, one.last, one.parts] for one in statuses],
    }


def topic(client: quoth.Client, name: str) -> Content:
    """Return the records and the settings of a topic."""
    gaps: list[quoth.Gap] = []
    found = [one for batch in client.batches(name, on_gap=gaps.append) for one in batch]
    info = client.topic(name)
    return {
        "log": info.log,
        "settings": info.settings,
        "lost": sum(gap.records for gap in gaps),
        "records": [
            [one.pointer, text(one.value), None if one.key is None else text(one.key)]
            + [[cell, text(value)] for cell, value in one.headers.items()]
            for one in found
        ],
    }


def use(client: quoth.Client, name: str) -> Content:
    """Publish, read, follow, share and commit. The result does not depend on the time."""
    client.publish(name, [b"one", b"two"], key=b"key", headers={"cell": b"value"}, durability="synced")
    with client.producer(name) as producer:
        for row in range(1_000):
            producer.send(b"%d" % row)
    read = [text(one.value) for one in client.read(name, limit=10_000)]
    followed = []
    for one in client.tail(name, after=0):
        followed.append(text(one.value))
        if len(followed) == len(read):
            break
    with client.group(name, "readers", max_attempts=3) as group:
        one, two, *others = group.fetch(500)
        one.ack()
        two.term("bad")
        for other in others:
            other.ack(wait=False)
        letters = [text(letter.value) for letter in _wait_for_letter(client, f"{name}.readers.dead")]
        group.seek(0)
        again = group.fetch(5)
        for other in again:
            other.ack()
    transaction = client.transaction(name, "loader", 1)
    part = transaction.part(0)
    part.write([b"staged"])
    ack = transaction.publish([part.finish()])
    newest = [text(one.value) for one in client.read(name, after=ack.first - 1)]
    client.roll(name)
    state = transaction.status().state
    client.update_topic(name, max_age="30d")
    return {
        "versions": [VERSION, client.status().server],
        "read": read,
        "is_followed": followed == read,
        "again": [text(other.value) for other in again],
        "letters": letters,
        "committed": [newest, state],
        "segments": client.topic(name).segments,
        "is_listed": name in client.topics(),
    }


def _wait_for_letter(client: quoth.Client, name: str) -> quoth.Messages:
    """Return the records of a topic of dead letters once it is there with one of them."""
    while name not in client.topics() or client.count(name).records == 0:
        time.sleep(0.01)
    return client.read(name)


def text(value: bytes) -> str:
    """Return bytes as text with a character for each."""
    return bytes(value).decode("latin-1")


def main() -> None:
    """Run what the arguments name."""
    what, url, *arguments = sys.argv[1:]
    with quoth.connect(url, timeout=60) as client:
        print(json.dumps(globals()[what](client, *arguments)))


if __name__ == "__main__":
    main()
