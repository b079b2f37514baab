"""The model of a broker answers questions about ranges as a broker does."""

from __future__ import annotations

import random
from bisect import bisect_right
from pathlib import Path
from typing import Any

import pytest

import quoth
from kit.broker.model import BrokerModel
from kit.scale import times
from quoth import Client
from quothd import Broker
from quothlog.reading import range_query
from quothwire.pointer import POINTER_MAX


def answers(asked: Client, pointers: list[int], after: int, until: int, number: int) -> list[Any]:
    """Ask about a range in three ways; returns the answers without log and bytes.

    Any pointer between two batches may divide a range, so ordinals are compared there.
    """
    reach, counted = asked.advance("t", after, max_records=number), asked.count("t", after, until)
    return [
        (reach.after, reach.until, reach.records, reach.gone, reach.newest, reach.end),
        (counted.records, counted.gone, counted.first, counted.last, counted.newest, counted.end),
        [
            (bisect_right(pointers, one.after), bisect_right(pointers, one.until), one.records)
            for one in asked.split("t", after, until, number)
        ],
    ]


def test_model_answers_about_any_history_as_a_broker_does(
    tmp_path: Path, rng: random.Random, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_query, "SHARES_NEAR", 0.0)  # the model has no segments at which it could divide
    model = BrokerModel()
    pointers: list[int] = []
    with Broker(tmp_path / "data") as broker, quoth.connect(broker) as client:
        for _ in range(times(200, 10_000)):
            match rng.randrange(8) if pointers else 7:
                case 0:
                    client.roll("t")
                case 1:
                    removed = client.trim("t", rng.choice([*pointers, POINTER_MAX])).records
                    while removed > 0:
                        removed -= len(model.trim_batches("t", 1))
                    assert removed == 0
                case _:
                    count = rng.choice([1, 2, 5, 40])
                    first = client.publish("t", [b"x"] * count).first
                    pointers += model.append("t", count, first)
            asked = *sorted(rng.choices([0, *pointers], k=2)), rng.choice([1, 2, 3, 10, 100])
            found, expected = answers(model, pointers, *asked), answers(client, pointers, *asked)
            assert found == expected, f"QUOTH_SEED={seed}"
