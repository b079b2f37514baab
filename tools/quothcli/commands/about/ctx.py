"""`quoth ctx`: names for brokers, and the one that commands ask by default."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from quothcli.cli import contexts
from quothcli.cli.command import SharedOptions, argument, command, group
from quothcli.cli.contexts import Context, Contexts
from quothcli.cli.exit_status import say
from quothcli.cli.options import Form, Timeout, WithoutBroker, context_names, key_option
from quothcli.cli.session import (
    CONTEXT_VARIABLE,
    KEY_OPTION,
    KEY_VARIABLE,
    URL_VARIABLE,
    ChosenKey,
    Session,
    session_of,
)
from quothcli.printing.output import Printer
from quothwire.text.quantity import format_span

_Key = Annotated[
    Path | None, key_option("--key-file --key FILE", "The key file for this broker, if it wants keys.")
]
_SessionWithKey = Annotated[
    Session, SharedOptions({"key_file": _Key, "timeout": Timeout, "form": Form}, session_of)
]
_Name = Annotated[str, argument("NAME", "The context's name.", autocompletion=context_names)]


app = group("Name brokers, and choose the one that commands ask.")


@command(
    app,
    "add",
    "quoth ctx add shop tcp://10.0.0.7:5555 --key alice.key",
    "quoth ctx add here ipc:///run/quoth/quoth",
)
def put(
    session: _SessionWithKey,
    name: Annotated[str, argument("NAME", "What to call it.")],
    url: Annotated[str, argument("URL", "Where the broker is.")],
) -> None:
    """Give a broker a name, or give a name another broker.

    `quoth ctx ls` prints the path of the file that holds them; only its owner may read it. Of a key it holds
    the path, so the key file has to stay where it is. A key is used for this broker alone, unless --key-file
    or QUOTH_KEY_FILE names it.
    """
    key = None
    if session.key_file is not None:
        key = str(ChosenKey(session.key_file, KEY_OPTION).checked().absolute())
    old, new = contexts.change(lambda held: held.add(name, Context(url, session.timeout, key)))
    was = old.contexts.get(name)
    if was is not None and was.url != url:
        say(f"quoth: {name} was {was.url} before")
    _print(session.printer, name, new, f"saved the context {name}")


@command(app, "use", "quoth ctx use shop", "quoth ctx use -")
def use(session: WithoutBroker, name: _Name) -> None:
    """Let commands ask this broker from now on; - is the one before."""
    _, new = contexts.change(lambda held: held.use(name))
    _print(session.printer, new.in_use, new, f"took the context {new.in_use} into use")
    _say_which_variable_wins()


@command(app, "ls", "quoth ctx ls", "quoth ctx ls --format json")
def ls(session: WithoutBroker) -> None:
    """List the contexts; a star marks the one in use."""
    printer = session.printer
    held = contexts.load()
    for name in sorted(held.contexts):
        _print(printer, name, held)
    say(f"quoth: {len(held.contexts)} in {contexts.path()}")
    _say_which_variable_wins()


@command(app, "rm", "quoth ctx rm shop")
def remove(session: WithoutBroker, name: _Name) -> None:
    """Forget a name; its broker goes on as before."""
    old, new = contexts.change(lambda held: held.remove(name))
    _print(session.printer, name, old, f"removed the context {name}")
    if old.in_use != new.in_use:
        say("quoth: it was in use, now none is; `quoth ctx use NAME` takes another")


def _print(printer: Printer, name: str, held: Contexts, done: str = "") -> None:
    """Print one context. A command without --ctx takes the one in use. done: what was changed, if it was."""
    found = held.contexts[name]
    in_use = name == (os.environ.get(CONTEXT_VARIABLE) or held.in_use)
    content = {
        "name": name,
        "url": found.url,
        "timeout": found.timeout,
        "key": found.key,
        "in_use": in_use,
        "overridden": in_use and URL_VARIABLE in os.environ,
    }
    waits = "" if found.timeout is None else f"  timeout {format_span(found.timeout, short=True)}"
    key = "" if found.key is None else f"  key {found.key}"
    overridden = f"  ({URL_VARIABLE} wins)" if content["overridden"] else ""
    width = max(map(len, held.contexts))
    line = f"{'*' if in_use else ' '} {name:<{width}}  {found.url}{waits}{key}{overridden}"
    if done:
        printer.done(done, line, content, name)
    else:
        printer.answer(line, content, name)


def _say_which_variable_wins() -> None:
    """Name the variables of the environment that win over the context in use, and over its key."""
    for variable in (URL_VARIABLE, CONTEXT_VARIABLE):
        if os.environ.get(variable):
            say(f"quoth: {variable} is set to {os.environ[variable]}, which wins over the context in use")
            break
    if path := os.environ.get(KEY_VARIABLE):
        say(f"quoth: {KEY_VARIABLE} is set to {path}, which wins over the key of the context in use")
