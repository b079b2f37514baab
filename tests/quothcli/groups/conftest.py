"""Fixtures of the tests of consumer groups on the command line: groups that have dead letters."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kit.deadlines import eventually
from quoth import Client

Bury = Callable[..., list[int]]
"""Makes dead letters of values; returns the pointers of the letters, oldest first."""


@pytest.fixture
def bury(client: Client, topic: str) -> Bury:
    """Publish values, and let the group ``g`` reject them, one after the other."""

    def make(*values: bytes, group: str = "g", **settings: object) -> list[int]:
        for value in values:
            client.publish(topic, value, key=b"k" + value, headers={"own": value})
        with client.group(topic, group, **settings) as member:  # type: ignore[arg-type]
            before = member.info().dead
            for message in member.fetch(len(values)):
                message.term(f"cannot bill {message.value.decode()}")
            eventually(lambda: member.info().dead == before + len(values), "all are dead letters")
            target = str(settings.get("dead_letter", f"{topic}.{group}.dead"))
        letters = client.read(target, limit=100_000)
        return [one.pointer for one in letters if one.headers["quoth-group"] == group.encode()]

    return make
