"""The settings of a group as options of commands, and as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from quoth.timestamps import as_pointer
from quothcli.cli.command import SharedOptions, as_typed, option
from quothcli.printing.text import printable
from quothwire.errors import QuothError, error
from quothwire.text.quantity import format_span
from quothwire.text.suggestion import nearest

Mode = Literal["at_least_once", "at_most_once", "cursor"]
NONE = "none"
"""Typed for no dead-letter topic."""

PLACES = ("begin", "end")
_HINTS = {
    "lease": "like 30s or 5m, at most 12h",
    "max_in_flight": "like 1000",
    "max_attempts": "like 5; 0: no limit",
    "backoff": "like 1,5,30 or 500ms,10s,5m; each at most 12h",
    "durability": "written or synced",
}


def place_typed(text: str) -> int | str:
    """Parse the place of a group: begin, end, or a time or pointer, whose record is the first one to come.

    Raises `RequestError` ``bad_pointer``.
    """
    if text in PLACES:
        return text
    try:
        return max(0, as_pointer(text) - 1)
    except QuothError as problem:
        near = nearest(text, PLACES)
        known = problem.hint.startswith("like ")
        hint = f"begin, end, or a time or pointer {problem.hint}" if known else problem.hint
        hint = f"did you mean {near}?" if near else hint
        raise error(problem.code, problem.text, hint) from None


Start = Annotated[
    Any,
    option(
        "--start WHERE",
        "Where a new group begins: begin, end, or a time or pointer as for --since (default: begin).",
        parser=place_typed,
    ),
]
_OPTIONS: dict[str, Any] = {
    "mode": Annotated[
        Mode | None,
        option(
            "--mode MODE",
            "at_least_once: a record is finished when it is acknowledged (the default); at_most_once: before "
            "it is handed out; cursor: a pointer for a reader, without leases.",
        ),
    ],
    "lease": Annotated[
        str | None,
        option("--lease SPAN", "How long a member has a record, unless it extends that (default 30s)."),
    ],
    "max_in_flight": Annotated[
        str | None,
        option(
            "--max-in-flight N",
            "Records that are handed out and not finished; 1 for a strict order (default 1000).",
        ),
    ],
    "max_attempts": Annotated[
        str | None,
        option(
            "--max-attempts N",
            "Hand-outs of a record before it becomes a dead letter; 0: no limit (default 5).",
        ),
    ],
    "backoff": Annotated[
        str | None,
        option(
            "--backoff SPANS",
            "Time before the second hand-out of a record, the third, and so on; the last one repeats "
            "(default 1,5,30).",
        ),
    ],
    "dead_letter": Annotated[
        str | None,
        option(
            "--dead-letter TOPIC",
            f"The topic of the dead letters; auto: TOPIC.GROUP.dead (the default); {NONE}: there is none.",
        ),
    ],
    "key_order": Annotated[
        bool | None,
        option(
            "--key-order/--no-key-order",
            "Hand out the records of one key one after the other (default: no).",
            show_default=False,
        ),
    ],
    "durability": Annotated[
        str | None,
        option("--durability LEVEL", "What an ack means: written or synced (default: as the topic)."),
    ],
}
"""Every setting of a group, as an option."""
GroupSettingsTyped = Annotated[dict[str, Any], SharedOptions(_OPTIONS, as_typed)]
"""The parameter of a command for the settings of a group."""


def parsed_settings(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the settings that were typed. Raises `RequestError` ``bad_setting``, which names the option."""
    from quothwire.protocol.group_settings import GroupSettings, as_sent

    found: dict[str, Any] = {}
    for name, value in typed.items():
        if value is None:
            continue
        try:
            sent = as_sent({name: _parsed(name, value)})
            GroupSettings.of(sent)
        except QuothError as problem:
            text = problem.text.removeprefix(f"{name}: ")
            known = text.removeprefix(f"{name} is ")
            text = f"{_option(name)} is {known}" if known != text else f"{_option(name)}: {text}"
            raise error(problem.code, text, _HINTS.get(name, problem.hint)) from None
        found |= sent
    return found


def settings_in_words(topic: str, group: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """Format the settings of a group for people; unknown ones as they are."""
    from quothwire.protocol.group_settings import GroupSettings

    known = {name: value for name, value in settings.items() if name in _OPTIONS}
    target = GroupSettings.of(known).dead_letter_topic(topic, group)
    words = {name: str(value) for name, value in settings.items()}
    return words | {
        "lease": format_span(settings["lease"]),
        "max_in_flight": f"{settings['max_in_flight']:,}",
        "max_attempts": f"{settings['max_attempts'] or 'no limit'}",
        "backoff": ", ".join(format_span(delay) for delay in settings["backoff"]),
        "dead_letter": printable(target) or NONE,
        "key_order": "yes" if settings["key_order"] else "no",
        "durability": settings["durability"] or "as the topic",
    }


def _parsed(name: str, value: Any) -> Any:
    if name in ("max_in_flight", "max_attempts"):
        return _count(value)
    if name == "backoff":
        return [one.strip() for one in value.split(",")]
    return None if name == "dead_letter" and value == NONE else value


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise error("bad_setting", f"{text!r} is no number")
    return int(text)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
