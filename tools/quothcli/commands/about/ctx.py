"""`quoth ctx`: brokers under names of one's own, and the one that commands ask when they are not told."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from quothcli.cli import contexts
from quothcli.cli.command import command, group
from quothcli.cli.completion import context_names
from quothcli.cli.contexts import Context, Contexts
from quothcli.cli.exit_status import say
from quothcli.cli.options import Form, Timeout
from quothcli.cli.session import CONTEXT_VARIABLE, URL_VARIABLE, chosen
from quothcli.printing.output import Printer
from quothwire.text.quantity import format_span

_Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The context's name.", autocompletion=context_names),
]


def add(app: typer.Typer) -> None:
    """Put `ctx` and its commands into the command."""
    ctx = group("Name brokers, and choose the one that commands ask.")
    app.add_typer(ctx, name="ctx")
    command(
        ctx, "add", "quoth ctx add shop tcp://10.0.0.7:5555", "quoth ctx add here ipc:///run/quoth/quoth"
    )(put)
    command(ctx, "use", "quoth ctx use shop", "quoth ctx use -")(use)
    command(ctx, "ls", "quoth ctx ls", "quoth ctx ls --format json")(ls)
    command(ctx, "rm", "quoth ctx rm shop")(remove)


def put(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the broker is.")],
    timeout: Timeout = None,
    form: Form = None,
) -> None:
    """Give a broker a name, or give a name another broker.

    `quoth ctx ls` prints the path of the file that holds them; only its owner may read it.
    """
    asked = chosen(context, timeout=timeout, form=form)
    old, new = contexts.change(lambda held: held.add(name, Context(url, asked.timeout)))
    was = old.contexts.get(name)
    if was is not None and was.url != url:
        say(f"quoth: {name} was {was.url} before")
    _print(Printer(asked.format), name, new)


def use(context: typer.Context, name: _Name, form: Form = None) -> None:
    """Let commands ask this broker from now on; - is the one before."""
    _, new = contexts.change(lambda held: held.use(name))
    _print(Printer(chosen(context, form=form).format), new.in_use, new)
    _say_what_wins()


def ls(context: typer.Context, form: Form = None) -> None:
    """List the contexts; a star marks the one in use."""
    printer = Printer(chosen(context, form=form).format)
    held = contexts.load()
    for name in sorted(held.contexts):
        _print(printer, name, held)
    printer.flush()
    say(f"quoth: {len(held.contexts)} in {contexts.path()}")
    _say_what_wins()


def remove(context: typer.Context, name: _Name, form: Form = None) -> None:
    """Forget a name; its broker goes on as before."""
    old, new = contexts.change(lambda held: held.remove(name))
    _print(Printer(chosen(context, form=form).format), name, old)
    if old.in_use != new.in_use:
        say("quoth: it was in use, now none is; `quoth ctx use NAME` takes another")


def _print(printer: Printer, name: str, held: Contexts) -> None:
    """Print one context. In use is the one that a command without --ctx takes."""
    found = held.contexts[name]
    in_use = name == (os.environ.get(CONTEXT_VARIABLE) or held.in_use)
    content = {
        "name": name,
        "url": found.url,
        "timeout": found.timeout,
        "in_use": in_use,
        "overridden": in_use and URL_VARIABLE in os.environ,
    }
    waits = "" if found.timeout is None else f"  timeout {format_span(found.timeout, short=True)}"
    overridden = f"  ({URL_VARIABLE} wins)" if content["overridden"] else ""
    width = max(map(len, held.contexts))
    printer.answer(f"{'*' if in_use else ' '} {name:<{width}}  {found.url}{waits}{overridden}", content, name)


def _say_what_wins() -> None:
    """Name the variable of the environment that wins over the context in use, if there is one."""
    for variable in (URL_VARIABLE, CONTEXT_VARIABLE):
        if os.environ.get(variable):
            say(f"quoth: {variable} is set to {os.environ[variable]}, which wins over the context in use")
            return
