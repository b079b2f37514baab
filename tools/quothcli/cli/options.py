"""The arguments and options that commands share."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer import BadParameter, Context

from quoth.core.options import DEFAULT_TIMEOUT_S, DEFAULT_URL
from quoth.timestamps import as_pointer
from quothcli.cli import contexts
from quothcli.cli.command import SharedOptions, argument, option
from quothcli.cli.quantities import span
from quothcli.cli.session import (
    CONTEXT_VARIABLE,
    KEY_OPTION,
    KEY_VARIABLE,
    URL_VARIABLE,
    Session,
    session_of,
)
from quothcli.printing.output import Format
from quothwire.pointer import POINTER_MAX
from quothwire.text.paths import given_path

COMPLETION_VARIABLE = "_QUOTH_COMPLETE"
"""The variable by which a shell asks for completions."""
COMPLETION_S = 0.3
"""Time in which a broker has to list its topics for a shell: more than a distant one needs, less than
a person notices."""


def topic_names(context: Context, incomplete: str) -> list[str]:
    """List the broker's topics that begin like this, for completion; none if it does not answer at once."""
    with suppress(Exception), session_of_line(context).connect() as client:
        return [name for name in client.topics() if name.startswith(incomplete)]
    return []


def group_names(context: Context, incomplete: str) -> list[str]:
    """List the groups of the typed topic that begin like this, for completion; as `topic_names`."""
    # Behind an option without its value no argument is parsed yet.
    topic = context.params.get("topic") or next(iter(context.args), "")
    with suppress(Exception), session_of_line(context).connect() as client:
        return [one.group for one in client.groups(topic or "") if one.group.startswith(incomplete)]
    return []


def session_of_line(context: Context) -> Session:
    """Make a session for the broker that a line names, as far as it is typed."""
    typed = [one.params for one in (context, context.find_root())]
    url, ctx, key = (
        next((one[name] for one in typed if one.get(name)), None) for name in ("url", "ctx", "key_file")
    )
    return Session(url=url, ctx=ctx, key_file=key, timeout=COMPLETION_S)


def context_names(incomplete: str) -> list[str]:
    """List the contexts that begin like this, for completion."""
    with suppress(Exception):
        return [name for name in sorted(contexts.load().contexts) if name.startswith(incomplete)]
    return []


Url = Annotated[
    str | None, option("--url URL", f"Where the broker is (env {URL_VARIABLE}; default {DEFAULT_URL}).")
]
Ctx = Annotated[
    str | None,
    option(
        "--ctx NAME",
        f"The context that names the broker (env {CONTEXT_VARIABLE}; default: the one in use).",
        autocompletion=context_names,
    ),
]


def key_option(typed: str, help_text: str, what: str = KEY_OPTION) -> Any:
    """Make an option that takes the path of a key file. what: its name in errors."""
    return option(typed, help_text, parser=partial(given_path, what=what))


_KEY_HELP = f"The key file for a broker with keys (env {KEY_VARIABLE}; default: that of the context)."
Key = Annotated[Path | None, key_option("--key-file --key FILE", _KEY_HELP)]
KeyBesideRecords = Annotated[Path | None, key_option("--key-file FILE", _KEY_HELP)]
"""For commands whose --key is that of records."""
Timeout = Annotated[
    float | None,
    option(
        "--timeout SPAN",
        f"How long to wait for the broker: 500ms, 1m30s, seconds (default {DEFAULT_TIMEOUT_S:g}s).",
        parser=span("--timeout", least=0.001),
    ),
]
Form = Annotated[
    Format | None,
    option(
        "--format",
        "text for people, json or jsonl with one object per line, raw with bare values (default text).",
    ),
]
_OF_BROKER = {"url": Url, "ctx": Ctx, "key_file": Key, "timeout": Timeout, "form": Form}
WithBroker = Annotated[Session, SharedOptions(_OF_BROKER, session_of)]
"""The session of a command that is a client of a broker."""
WithBrokerOfRecords = Annotated[
    Session, SharedOptions({**_OF_BROKER, "key_file": KeyBesideRecords}, session_of)
]
"""The same where --key is that of records."""
WithoutBroker = Annotated[Session, SharedOptions({"form": Form}, session_of)]
"""The session of a command that only prints."""

Template = Annotated[
    str | None,
    option(
        "--template TEXT",
        "Print each record so, instead of a --format: fields {topic} {pointer} {time} {key} {value} "
        "{headers[NAME]} {headers_problem} {raw_headers}, {time:%H:%M:%S}, {value!raw} for the bytes as they "
        "are; \\t, \\n; {{ for a brace.",
    ),
]
Topic = Annotated[str, argument("TOPIC", "The topic's name.", autocompletion=topic_names)]
Topics = Annotated[
    list[str],
    argument(
        "TOPIC",
        "Names of topics, or patterns in quotes: 'orders.*' also takes those that are made later.",
        autocompletion=topic_names,
    ),
]
GroupName = Annotated[str, argument("GROUP", "The group's name.", autocompletion=group_names)]
Merge = Annotated[
    bool, option("--merge", "Print the records of several topics in the order of time, not as they come.")
]
CursorFile = Annotated[
    Path | None,
    option(
        "--cursor FILE",
        "Go on at the pointer in FILE, and keep the progress there. It is saved after the output was "
        "written, so a record may come twice after a crash, none is left out. --after and --since, and the "
        "-n of tail, say where a new FILE begins.",
    ),
]
After = Annotated[
    int | None,
    option("--after POINTER", "Begin behind this pointer (0: before the oldest record).", parser=as_pointer),
]
Since = Annotated[
    int | None,
    option(
        "--since TIME",
        "Begin at this time: 2026-01-02T03:04:05Z, -15m, -1d3h, or a pointer.",
        parser=as_pointer,
    ),
]
Until = Annotated[
    int | None,
    option("--until TIME", "Stop before this time or pointer, given as for --since.", parser=as_pointer),
]
Wait = Annotated[
    bool,
    option("--wait/--no-wait", "Wait for a broker that is not there yet (default: yes).", show_default=False),
]
Pointers = Annotated[bool, option("--pointers", "On a terminal, show pointers, too.")]
Yes = Annotated[bool, option("--yes -y", "Do not ask.")]
Limit = Annotated[int | None, option("--limit --first N", "End after N records (default: no limit).", min=0)]


def start(after: int | None, since: int | None) -> int | None:
    """Return the cursor at which to begin. Raises BadParameter if both were typed."""
    if after is not None and since is not None:
        raise BadParameter("it says the same as --since: give one of them", param_hint="--after")
    return after if since is None else max(0, since - 1)


class BetweenPointers(NamedTuple):
    """The records above the pointer `after` up to `until`."""

    after: int
    until: int


def _between(_context: Context, after: int | None, since: int | None, until: int | None) -> BetweenPointers:
    return BetweenPointers(start(after, since) or 0, POINTER_MAX if until is None else max(0, until - 1))


Between = Annotated[
    BetweenPointers, SharedOptions({"after": After, "since": Since, "until": Until}, _between)
]
"""The parameter of a command for a range."""
