"""The lags of groups and named cursors, as the statistics show them."""

from __future__ import annotations

from quoth import Client
from quoth.spark.statistics.lags import group_lags
from quoth.timestamps import now


def test_groups_and_cursors_of_topics_have_their_lag_in_records_and_seconds(
    client: Client, topic: str
) -> None:
    names = [topic, f"{topic}-2", f"{topic}-without"]
    before = now()
    first = {name: client.publish(name, [b"x"] * 10).first for name in names}
    client.cursor(topic, "report").commit(first[topic] + 3)
    with client.group(topic, "billing") as group:
        for message in group.fetch(2):
            message.ack()
    client.cursor(f"{topic}-2", "done", start="end").pointer()
    found = group_lags(client, [*names, "no-such-topic"])
    assert [(one.topic, one.group, one.mode, one.records) for one in found] == [
        (topic, "billing", "at_least_once", 8),
        (topic, "report", "cursor", 6),
        (f"{topic}-2", "done", "cursor", 0),
    ]
    longest = (now() - before) / 1e6
    assert [0 < one.seconds <= longest for one in found] == [True, True, False]
    assert found[-1].seconds == 0
    assert all(before < one.at <= now() for one in found)
