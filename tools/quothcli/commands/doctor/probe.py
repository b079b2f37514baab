"""Publishes, syncs and reads records of its own, and removes them with their topic.

Each doctor has a topic of its own, with its time and a random number in the name, so that several may run at
once. The topic of a doctor that was killed is removed by a later one, when it is so old that no doctor can
still use it. A topic with such a name that holds something else stays.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable

from quoth import Client, NotFound
from quothcli.commands.doctor.finding import Finding, fail, ok, warn
from quothwire.errors import QuothError

ANSWER_S = 10.0
"""A publish may wait for a slow disk."""
PREFIX = "_quoth.doctor."
VALUE = b"a record of `quoth doctor`, which removes it"
LEFT_AFTER_S = 600.0
_NAME = re.compile(re.escape(PREFIX) + r"(\d+)-[0-9a-f]{16}")
RECORDS = 2
"""One for each level."""


def probe(client: Client) -> list[Finding]:
    """Check that records can be published, read and removed; measures each step."""
    topic = f"{PREFIX}{time.time_ns() // 1_000}-{secrets.token_hex(8)}"
    found: list[Finding] = []
    try:
        found += _removed_leftovers(client)
        client.create_topic(topic)
    except QuothError as problem:
        full = warn if problem.code == "topics_max" else fail
        return [
            *found,
            full("publish", f"no topic can be made: {problem.code}: {problem.text}", problem.hint),
        ]
    try:
        found.append(_there_and_back(client, topic))
    except QuothError as problem:
        found.append(fail("publish", f"{problem.code}: {problem.text}", problem.hint))
    finally:
        found += _removed(client, topic)
    return found


def _there_and_back(client: Client, topic: str) -> Finding:
    """Publish at every level, and read the records. Raises `QuothError`."""
    values: list[bytes] = []
    written = _ms(lambda: client.publish(topic, VALUE, durability="written"))
    synced = _ms(lambda: client.publish(topic, VALUE, durability="synced"))
    read = _ms(lambda: values.extend(one.value for one in client.read(topic)))
    if values != [VALUE] * RECORDS:
        text = f"{RECORDS} records were published, {len(values)} were read, and not the same"
        return fail("publish", text, f"`quoth topic info {topic}`, and look into the broker's log")
    return ok("publish", f"a record is written in {written}, synced in {synced}, read in {read}")


def _ms(act: Callable[[], object]) -> str:
    began = time.perf_counter()
    act()
    return f"{(time.perf_counter() - began) * 1e3:.2f} ms"


def _removed(client: Client, topic: str) -> list[Finding]:
    """Remove a topic of a doctor; returns a finding if that fails."""
    try:
        client.delete_topic(topic)
    except NotFound:
        return []
    except QuothError as problem:
        text = f"the topic {topic} of this probe cannot be removed: {problem.code}: {problem.text}"
        return [fail("publish", text, f"later: quoth topic rm {topic} --yes")]
    return []


def _removed_leftovers(client: Client) -> list[Finding]:
    """Remove the topics of doctors that were killed."""
    found: list[Finding] = []
    for topic in client.topics():
        name = _NAME.fullmatch(topic)
        if name is None or time.time() - int(name[1]) / 1e6 < LEFT_AFTER_S:
            continue
        try:
            if any(one.value != VALUE for one in client.read(topic, limit=RECORDS + 1)):
                text = f"the topic {topic} is named like one of a doctor, but holds something else: it stays"
                found.append(warn("publish", text, "publish under names of your own"))
                continue
        except QuothError:
            continue  # another doctor removes it, or it cannot be read, which its own topic shows
        found += _removed(client, topic)
    return found
