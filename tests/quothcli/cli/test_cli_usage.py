"""A mistyped command is refused in two lines; a word of another program gets the line to type."""

from __future__ import annotations

import shlex

import pytest

from kit.machine.commands import Command, Ended
from quothcli.application import root, run
from quothcli.cli.command import Group
from quothcli.cli.usage import MEANT

WRONG: dict[str, tuple[str, str, str]] = {
    # what was typed: code, text, hint
    "tpic ls": ("usage", "topic", "`quoth --help` shows how"),
    "topic lst": ("usage", "ls", "`quoth topic --help` shows how"),
    "read": ("usage", "usage: Missing argument 'TOPIC'", "`quoth read --help`"),
    "log dump": ("usage", "DIR", "`quoth log dump --help`"),
    "read x --limt 5": ("usage", "--limit", "`quoth read --help`"),
    "serve --prot 5": ("usage", "--port", "`quoth serve --help`"),
    "read t --format xml": ("usage", "--format is text, json, jsonl or raw, not 'xml'", "`quoth read --"),
    "read t --format jsn": ("usage", "--format is text, json, jsonl or raw, not 'jsn'", "did you mean json?"),
    "read t --limit many": ("usage", "--limit is a whole number, not 'many'", "`quoth read --help`"),
    "read t --limit -1": ("usage", "--limit is at least 0, not -1", "`quoth read --help`"),
    "split t --parts 0": ("usage", "--parts is at least 1, not 0", "`quoth split --help`"),
    "split t": ("usage", "--parts", "`quoth split --help`"),
    "transaction status t a b": ("usage", "VERSION is a whole number, not 'b'", "`quoth transaction status"),
    "transaction abort t a -- -1": ("usage", "VERSION", "`quoth transaction abort --help`"),
    "transaction abort t": ("usage", "APPLICATION", "`quoth transaction abort --help`"),
    "ping --timeout 5x": ("bad_setting", "--timeout: '5x' is not a span of time: there is no unit", "like"),
    "ping --timeout 0": ("bad_setting", "--timeout is at least 1 millisecond and at most", "like"),
    "log verify d --rate 5q": ("bad_setting", "--rate: '5q' is not a size: there is no unit", "like 1GiB"),
    "log verify d --rate 0": (
        "bad_setting", "--rate is at least 1 byte, not '0'", "like 1GiB, 64MiB, 10MB or 4096",
    ),
    "top --interval 2d": ("bad_setting", "at most 1 day, not '2d'", "like 1h30m, 90s, 5s or 500ms"),
    "top --interval never": ("bad_setting", "it has to be finite here", "like 1h30m, 90s, 5s or 500ms"),
    "topic trim t": ("usage", "--before", "`quoth topic trim --help`"),
    "topic set t": ("usage", "usage: say what to change, like --max-age 7d", "`quoth topic set --help`"),
    "topic set t --max-bytes 99999999999999999999": ("bad_setting", "--max-bytes: '99", ""),
    "topic set t --max-age 5x": ("bad_setting", "--max-age: '5x' is not a span of time: there is no", ""),
    "topic set t --max-bytes much": ("bad_setting", "--max-bytes: 'much' is not a size: it does not", ""),
    "topic set t --durability maybe": ("bad_setting", "--durability: 'maybe' is no durability", "written or"),
    "topic set t --count-limit many": ("bad_setting", "--count-limit: 'many' is no number of", "like"),
    "tail t --watermark": ("usage", "usage: --watermark: only a --merge has one", "`quoth tail --help`"),
    "tail t -n 1 --after 1": ("usage", "usage: -n: it says where to begin", "`quoth tail --help`"),
    "tail t -n 1 --since 1": ("usage", "(--limit N: end after N)", "`quoth tail --help`"),
    "read t --after 1 --since 1": ("usage", "--after: it says the same as --since", "`quoth read --help`"),
    "count t --after 1 --since 1": ("usage", "--after: it says the same as --since", "`quoth count --help`"),
    "read t --grep (": ("usage", "usage: --grep: '(' is no regular expression", "`quoth read --help`"),
    "read t --header =x": ("usage", "usage: --header: a header has a name", "`quoth read --help`"),
    "read t --since 1h": ("bad_pointer", "'1h' is a span of time, not a moment", "did you mean -1h?"),
    "read t --since yesterday": ("bad_pointer", "'yesterday' is neither a pointer nor a time", ""),
    "read t --until -5x": ("bad_pointer", "'-5x' is no span before now", ""),
    "read t --since 2026-13-02": (
        "bad_pointer", "'2026-13-02' is no time: there is no month 13", "a month is 01 to 12",
    ),
    "topic trim t --before 2026-02-30": (
        "bad_pointer", "no time: there is no day 30 in 2026-02", "a day of 2026-02 is 01 to 28",
    ),
    **{
        f"{command} --template {{vlaue}}": ("usage", "did you mean {value}?", f"`quoth {name} --help`")
        for command, name in (
            ("read t", "read"), ("tail t", "tail"), ("get t 5", "get"), ("log dump .", "log dump"),
        )
    },
    "consume t": ("usage", "usage: Missing option '--group'", "`quoth consume --help`"),
    "consume t -g g --concurrency 2": ("usage", "--concurrency: it is for the commands", "`quoth con"),
    "consume t -g g --exec ''": ("usage", "--exec: it is empty: say what to run", "`quoth consume --help`"),
    "consume t -g g --exec cat --template x": ("usage", "--template: it is for what is", "`quoth con"),
    "consume t -g g --batch 2 --format raw": ("usage", "--batch: it gives lines of JSON", "`quoth consume"),
    "consume t -g g --mode cursor": ("usage", "--mode: a cursor has no members", "`quoth consume --help`"),
    "group create t g --mode exactly": ("usage", "--mode is at_least_once, at_most_once or cursor", ""),
    "group create t g --lease 5x": ("bad_setting", "--lease: '5x' is not a span of time", "like 30s or 5m"),
    "group create t g --lease 1d": ("bad_setting", "--lease is a number from 0.01 to 43200", "like"),
    "group create t g --backoff 1,,5": ("bad_setting", "--backoff: '' is not a span", "like 1,5,30"),
    "group create t g --max-attempts -1": ("bad_setting", "--max-attempts: '-1' is no", "like 5; 0:"),
    "group create t g --durability maybe": ("bad_setting", "--durability is written or", "written or"),
    "group create t g --start begining": ("bad_pointer", "'begining' is neither a", "did you mean b"),
    "group seek t g --to soon": ("bad_pointer", "'soon' is neither a pointer", "begin, end, or"),
    "group set t g": ("usage", "usage: say what to change, like --lease 2m", "`quoth group set"),
    "pub t x --kee k": ("usage", "--key", "`quoth pub --help`"),
    "pub t x --durability soon": ("usage", "--durability is written or synced, not 'soon'", "`quoth pub"),
    "pub t x --header a": ("usage", "usage: --header: 'a' is not NAME=VALUE", "`quoth pub --help`"),
    "pub t x --header =a": ("usage", "usage: --header: '=a' is not NAME=VALUE", "`quoth pub --help`"),
    "pub t x --file f": ("usage", "usage: --file: give VALUEs or files, not both", "`quoth pub --help`"),
    "pub t x --null": ("usage", "usage: --null, --json: they are for records", "`quoth pub --help`"),
    "pub t --file f --json": ("usage", "usage: --null, --json: they are for records", "`quoth pub --help`"),
    "pub t x --file-names": ("usage", "usage: --file-names: it needs --file", "`quoth pub --help`"),
    "pub t --json -K :": ("usage", "usage: --key-separator: it is for lines and VALUEs", "`quoth pub"),
    "pub t --file f -K :": ("usage", "usage: --key-separator: it is for lines and VALUEs", "`quoth pub"),
    "pub t x -K ''": ("usage", "usage: --key-separator: it must not be empty", "`quoth pub --help`"),
}  # fmt: skip


def test_mistyped_command_is_refused_in_two_lines(alone: Command) -> None:
    for typed, (code, text, hint) in WRONG.items():
        happened, advice = alone(*shlex.split(typed)).refused(2)
        assert happened.startswith(f"quoth: {code}: "), typed
        assert text in happened
        assert advice.startswith(f"hint: {hint}")


def test_spans_may_have_units(quoth: Command) -> None:
    assert quoth("ping", "--timeout", "1m30s").status == 0


# -- words of other programs ----------------------------------------------------------------------


TYPED = {
    "topic list --format json": "quoth topic ls --format json",
    "topic delete 'my orders' --yes": "quoth topic rm 'my orders' --yes",
    "topic describe orders": "quoth topic info orders",
    "ls": "quoth topic ls",
    "sub orders -n 8": "quoth tail orders -n 8",
    "--url tcp://a:1 topic list": "quoth --url tcp://a:1 topic ls",
    "context": "quoth ctx ls",
    "contexts list --format json": "quoth ctx ls --format json",
    "context use prod": "quoth ctx use prod",
    "context --format json": "quoth ctx ls --format json",
    "topics": "quoth topic ls",
    "topics create x --max-age 7d": "quoth topic create x --max-age 7d",
    "--url tcp://a:1 topics delete x": "quoth --url tcp://a:1 topic rm x",
    "info orders": "quoth topic info orders",
    "sub --help": "quoth tail --help",
    "groups orders": "quoth group orders",
    "groups": "quoth group ls",
    "group list orders": "quoth group ls orders",
    "groups delete orders billing": "quoth group rm orders billing",
    "group reset orders billing --to begin": "quoth group seek orders billing --to begin",
    "group dlq ls orders billing": "quoth group dead ls orders billing",
}


def test_alias_is_answered_with_the_line_to_type(capfd: pytest.CaptureFixture[str]) -> None:
    for typed, meant in TYPED.items():
        status = run(shlex.split(typed))
        said = capfd.readouterr()
        happened, advice = Ended(status, said.out.encode(), said.err).refused(2)
        assert happened.startswith("quoth: usage: there is no command `quoth ")
        assert advice == f"hint: type `{meant}`", typed


def test_command_that_is_meant_exists_and_its_alias_does_not() -> None:
    for path, meant in MEANT.items():
        group: Group = root()
        for word in meant.split() if meant != "--version" else ():
            group = group.get_command(None, word)
            assert group is not None, meant
        above = root() if len(path) == 1 else root().get_command(None, path[0])
        assert above.get_command(None, path[-1]) is None, path
