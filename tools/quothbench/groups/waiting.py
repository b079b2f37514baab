"""Waiting: the time from a publish to a member that waits, beside the time to a tail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

import quoth
from quothbench.figures import Goal, alternate
from quothbench.groups.consuming import new_name
from quothbench.groups.rows import GroupRows
from quothbench.instruments.latency import TAIL_WARM, age, by_client, produce, writer
from quothbench.load import driver
from quothbench.load.clients import Clients, Ready, play
from quothbench.load.servers import own_broker

RATE = 100.0
"""Records a second, one at a time, at fixed times."""
RECORDS = 100
"""Records of one measurement."""
GOAL = Goal(2.0)


def measure(directory: Path, rows: GroupRows, pairs: int, records: int = RECORDS, rate: float = RATE) -> None:
    """Measure the median time to a tail and to a member in turn, each with a topic of its own."""
    with own_broker(directory / "waiting") as broker, Clients(2) as pair:

        def wait(consumer: Callable[..., list[float]]) -> float:
            topic = new_name()
            producing = (produce, broker.url, topic, f"{topic} beside", rate, records)
            _, waited = pair.run(play, producing, (consumer, broker.url, topic, records))
            return float(median(waited.result)) * 1e6

        measured = alternate(partial(wait, by_client), partial(wait, _by_member), pairs)
    rows.compare("publish to a waiting member, p50", "us", records, "to a tail", measured, GOAL)


def _by_member(ready: Ready, url: str, topic: str, calls: int) -> list[float]:
    """Wait as the only member of a group; return the seconds of each record."""
    with driver.dealer(url) as socket:
        writer(socket, topic)()
    with quoth.connect(url) as client, client.group(topic, "waiting", start="end") as group:
        ready()
        return [age(message.value) for message in islice(group, TAIL_WARM + calls)][TAIL_WARM:]
