"""Publishes, syncs and reads records of its own, and removes them with their topic.

Each doctor has a topic of its own, with its time and a random number in the name, so that several may run at
once. The topic of a doctor that was killed is removed by a later one, when it is so old that no doctor can
still use it. A topic with such a name that holds something else stays.
"""

from __future__ import annotations

import re
import secrets
import time
from itertools import pairwise
from typing import Literal

from quoth import Client, NotFound
from quothcli.commands.doctor import Finding, Findings, fail, ok, warn
from quothwire.errors import QuothError

ANSWER_S = 10.0
"""A publish may wait for a slow disk."""
PREFIX = "_quoth.doctor."
VALUE = b"a record of `quoth doctor`, which removes it"
LEFT_AFTER_S = 600.0
_NAME = re.compile(re.escape(PREFIX) + r"(\d+)-[0-9a-f]{16}")
_LEVELS: tuple[Literal["written", "synced"], ...] = ("written", "synced")


def probe(client: Client) -> Findings:
    """Check that records can be published, read and removed; measures each step."""
    topic = f"{PREFIX}{time.time_ns() // 1_000}-{secrets.token_hex(8)}"
    try:
        yield from _removed_leftovers(client)
        client.create_topic(topic)
    except QuothError as problem:
        full = warn if problem.code in ("topics_max", "denied") else fail
        yield full("publish", f"no topic can be made: {problem.code}: {problem.text}", problem.hint)
        return
    try:
        yield _there_and_back(client, topic)
    except QuothError as problem:
        yield fail("publish", f"{problem.code}: {problem.text}", problem.hint)
    finally:
        yield from _removed(client, topic)


def _there_and_back(client: Client, topic: str) -> Finding:
    """Publish at every level, and read the records. Raises `QuothError`."""
    times = [time.perf_counter()]
    for level in _LEVELS:
        client.publish(topic, VALUE, durability=level)
        times.append(time.perf_counter())
    values = [one.value for one in client.read(topic)]
    times.append(time.perf_counter())
    if values != [VALUE] * len(_LEVELS):
        text = f"{len(_LEVELS)} records were published, {len(values)} were read, and not the same"
        return fail("publish", text, f"`quoth topic info {topic}`, and look into the broker's log")
    written, synced, read = (f"{(end - begin) * 1e3:.2f} ms" for begin, end in pairwise(times))
    return ok("publish", f"a record is written in {written}, synced in {synced}, read in {read}")


def _removed(client: Client, topic: str) -> Findings:
    """Remove a topic of a doctor; yields a finding if that fails."""
    try:
        client.delete_topic(topic)
    except NotFound:
        pass
    except QuothError as problem:
        text = f"the topic {topic} of this probe cannot be removed: {problem.code}: {problem.text}"
        yield fail("publish", text, f"later: quoth topic rm {topic} --yes")


def _removed_leftovers(client: Client) -> Findings:
    """Remove the topics of doctors that were killed."""
    for topic in client.topics():
        name = _NAME.fullmatch(topic)
        if name is None or time.time() - int(name[1]) / 1e6 < LEFT_AFTER_S:
            continue
        try:
            held = {one.value for one in client.read(topic, limit=len(_LEVELS) + 1)}
        except QuothError:
            continue  # another doctor removes it, or it cannot be read, which its own topic shows
        if held <= {VALUE}:
            yield from _removed(client, topic)
        else:
            text = f"the topic {topic} is named like one of a doctor, but holds something else: it stays"
            yield warn("publish", text, "publish under names of your own")
