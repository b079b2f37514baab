"""What was typed wrongly is said in plain words: choices, numbers, spans, sizes, times."""

from __future__ import annotations

import pytest

from kit.machine.commands import Command
from quothcli.application import run

WRONG: dict[str, tuple[str, str, str]] = {
    # what was typed: code, text, hint
    "read t --format xml": ("usage", "--format is text, json, jsonl or raw, not 'xml'", "`quoth read --"),
    "read t --format jsn": ("usage", "--format is text, json, jsonl or raw, not 'jsn'", "did you mean json?"),
    "read t --limit many": ("usage", "--limit is a whole number, not 'many'", "`quoth read --help`"),
    "read t --limit -1": ("usage", "--limit is at least 0, not -1", "`quoth read --help`"),
    "split t --parts 0": ("usage", "--parts is at least 1, not 0", "`quoth split --help`"),
    "transaction status t a b": ("usage", "VERSION is a whole number, not 'b'", "`quoth transaction status"),
    "ping --timeout 5x": ("bad_setting", "--timeout: '5x' is not a span of time: there is no unit", "like"),
    "ping --timeout 0": ("bad_setting", "--timeout is at least 1 millisecond and at most", "like"),
    "log verify d --rate 5q": ("bad_setting", "--rate: '5q' is not a size: there is no unit", "like 1GiB"),
    "log verify d --rate 0": (
        "bad_setting", "--rate is at least 1 byte, not '0'", "like 1GiB, 64MiB, 10MB or 4096",
    ),
    "top --interval 2d": ("bad_setting", "at most 1 day, not '2d'", "like 1h30m, 90s, 5s or 500ms"),
    "top --interval never": ("bad_setting", "it has to be finite here", "like 1h30m, 90s, 5s or 500ms"),
    "topic set t": ("usage", "usage: say what to change, like --max-age 7d", "`quoth topic set --help`"),
    "tail t --watermark": ("usage", "usage: --watermark: only a --merge has one", "`quoth tail --help`"),
    "tail t -n 1 --after 1": ("usage", "usage: -n: it says where to begin", "`quoth tail --help`"),
    "pub t x --null": ("usage", "usage: --null, --json: they are for records", "`quoth pub --help`"),
    "read": ("usage", "usage: Missing argument 'TOPIC'", "`quoth read --help`"),
    "read t --since 1h": ("bad_pointer", "'1h' is a span of time, not a moment", "did you mean -1h?"),
    "read t --since 2026-13-02": (
        "bad_pointer", "'2026-13-02' is no time: there is no month 13", "a month is 01 to 12",
    ),
    "topic trim t --before 2026-02-30": (
        "bad_pointer", "no time: there is no day 30 in 2026-02", "a day of 2026-02 is 01 to 28",
    ),
}  # fmt: skip


@pytest.mark.parametrize("typed", WRONG)
def test_what_is_wrong_is_said(capfd: pytest.CaptureFixture[str], typed: str) -> None:
    code, text, hint = WRONG[typed]
    assert run(typed.split()) == 2
    said = capfd.readouterr()
    first, second = said.err.splitlines()
    assert (said.out, first.partition(": ")[0]) == ("", "quoth")
    assert first.startswith(f"quoth: {code}: ")
    assert text in first
    assert second.startswith(f"hint: {hint}")


def test_the_command_says_it_and_takes_spans_with_units(quoth: Command) -> None:
    assert quoth("ping", "--timeout", "1m30s").status == 0
    told = quoth("read", "t", "--format", "xml")
    assert (told.status, told.err.splitlines()[0]) == (
        2, "quoth: usage: --format is text, json, jsonl or raw, not 'xml'",
    )  # fmt: skip
