"""`quoth bench steps`: each step of a call by itself."""

from __future__ import annotations

import json

from kit.machine.commands import Command


def test_each_step_has_a_row_with_its_time(alone: Command) -> None:
    done = alone("bench", "steps", "--trial", "1ms", "--format", "json")
    head, *rows = map(json.loads, done.out.splitlines())
    assert head["durability"] == "written"
    assert all(0 < row["nanoseconds"]["low"] <= row["nanoseconds"]["median"] for row in rows)
    assert {row["of"] for row in rows} == {"call", "both", "record"}
    assert all((row["required"] is None) == (row["of"] != "record") for row in rows)
    whole = next(row for row in rows if row["step"] == "publish: check, place, write, alone")
    part = next(row for row in rows if row["step"] == "publish: check the batch")
    assert part["nanoseconds"]["low"] < whole["nanoseconds"]["median"]
