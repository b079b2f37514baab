"""`quoth errors` explains the codes of the protocol, without a broker."""

from __future__ import annotations

import quoth
from kit.machine.commands import Command
from quothwire.errors import CODES


def test_one_code_is_explained(alone: Command) -> None:
    told = alone("errors", "disk_low")
    assert told.status == 0, told
    assert told.lines[0] == "disk_low"
    assert f"  hint: {CODES['disk_low'].hint}" in told.lines
    assert f"  {CODES['disk_low'].meaning}" in told.lines
    assert told.lines[-1] == "  may succeed if tried again; quoth.Unavailable in Python; exit status 1"


def test_all_codes_are_explained(alone: Command) -> None:
    told = alone("errors", "--format", "json").objects
    assert [one["code"] for one in told] == list(CODES)
    assert all(one["meaning"].endswith(".") and one["hint"] for one in told)
    assert all(issubclass(getattr(quoth, one["error"]), quoth.QuothError) for one in told)
    assert {one["code"]: one["retryable"] for one in told} == {
        code: row.retryable for code, row in CODES.items()
    }


def test_unknown_code_suggests_a_similar_one(alone: Command) -> None:
    happened, advice = alone("errors", "disc_low").refused(3)
    assert "unknown_code: no error has the code 'disc_low'" in happened
    assert "disk_low" in advice
