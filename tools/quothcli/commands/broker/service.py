"""`quoth service`: copies the broker's unit, its user and its configuration to where systemd finds them.

It only writes files, so it works without a running systemd, as packagers need it.
"""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

from quothcli.cli.command import command, group, option
from quothcli.cli.contexts import config_home
from quothcli.cli.exit_status import CommandStatus, Refused, say
from quothcli.cli.options import WithoutBroker
from quothcli.commands.about.pages import shipped
from quothcli.printing.output import Printer

UNIT = "quothd.service"
SHIPPED_COMMAND = "/usr/bin/quothd"
"""The daemon in the shipped units; `install` writes that of this environment."""
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
"""Directories that ProtectHome and PrivateTmp hide from the service."""

_User = Annotated[bool, option("--user", "A service of your own, without root and without sandbox.")]
_Prefix = Annotated[
    Path | None,
    option(
        "--prefix DIR",
        "Take this directory for / (with --user, for your home), to look or to make a package.",
    ),
]
_DryRun = Annotated[bool, option("--dry-run", "Say what would be done, and do nothing.")]


class Layout(NamedTuple):
    """The files of a service by their paths. enabled: the link that starts it at boot."""

    files: dict[Path, str]
    config: Path
    enabled: Path
    systemctl: str
    data: str


app = group("The broker as a service of systemd: install, uninstall.")


@command(
    app,
    "install",
    "sudo quoth service install",
    "quoth service install --user",
    "quoth service install --prefix ./package --dry-run",
)
def install(
    session: WithoutBroker, *, user: _User = False, prefix: _Prefix = None, dry_run: _DryRun = False
) -> None:
    """Copy the unit, the user and the configuration to their places.

    Nothing is started; what to type next is printed. A configuration that is there already is kept; changes
    of the unit belong into a drop-in: `systemctl edit quothd`. Exit status: 0 done, 1 root is needed, 3 there
    is no quothd beside this command.
    """
    _refuse_without_root(user, prefix)
    quothd = Path(sysconfig.get_path("scripts")) / "quothd"
    if not quothd.exists():
        hint = "install Quoth into an environment: pip install quoth"
        raise Refused("not_found", f"there is no {quothd}", hint, CommandStatus.NOT_FOUND)
    layout = _layout(quothd, user=user, prefix=prefix)
    printer = session.printer
    os.umask(0o022)  # the service reads the files as another user
    for path, text in layout.files.items():
        done = "kept" if path == layout.config and path.exists() else "written"
        if done == "written" and not dry_run:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        _print(printer, path, done, dry_run=dry_run)
    for line in _next_steps(layout, user=user):
        printer.answer(line, {"next": line})
    hidden = next((one for one in HIDDEN if quothd.resolve().is_relative_to(one)), None)
    if hidden is not None and not user:
        say(f"quoth: the service cannot start {quothd}: {hidden} is hidden from it")
        say("hint: install into an environment below /opt or /usr/local, and run its quoth; or use --user")


@command(app, "uninstall", "sudo quoth service uninstall", "quoth service uninstall --user")
def uninstall(
    session: WithoutBroker, *, user: _User = False, prefix: _Prefix = None, dry_run: _DryRun = False
) -> None:
    """Remove the files that `install` has written.

    The data stays, and so does a configuration that was changed. Exit status: 0 done, 1 root is needed, or
    the service is still enabled.
    """
    _refuse_without_root(user, prefix)
    layout = _layout(Path(SHIPPED_COMMAND), user=user, prefix=prefix)
    if os.path.lexists(layout.enabled):
        text = f"the service is enabled: {layout.enabled}"
        raise Refused("enabled", text, f"{layout.systemctl} disable --now quothd")
    printer = session.printer
    for path, text in layout.files.items():
        if path.exists():
            is_changed = path == layout.config and path.read_text("utf-8", "replace") != text
            if not (is_changed or dry_run):
                path.unlink()
            _print(printer, path, "kept" if is_changed else "removed", dry_run=dry_run)
    printer.answer(f"the data stays, if there is any: {layout.data}", {"path": layout.data, "done": "kept"})
    line = f"{layout.systemctl} daemon-reload"
    printer.answer(f"next: {line}", {"next": line})


def _layout(quothd: Path, *, user: bool, prefix: Path | None) -> Layout:
    from quothd.config import template

    if user:
        home = config_home() if prefix is None else prefix / ".config"
        units, config = home / "systemd" / "user", home / "quoth" / "quothd.toml"
        files = {units / UNIT: _unit(f"user/{UNIT}", quothd), config: template.text()}
        enabled = units / "default.target.wants" / UNIT
        return Layout(files, config, enabled, "systemctl --user", "~/.local/share/quoth")
    etc = (prefix or Path("/")) / "etc"
    units, config = etc / "systemd" / "system", etc / "quoth" / "quothd.toml"
    files = {
        units / UNIT: _unit(UNIT, quothd),
        etc / "sysusers.d" / "quoth.conf": shipped("systemd/quoth.sysusers", "systemd/quoth.sysusers"),
        config: template.text(),
    }
    return Layout(files, config, units / "multi-user.target.wants" / UNIT, "systemctl", "/var/lib/quoth")


def _unit(name: str, quothd: Path) -> str:
    """Return a unit that starts the quothd of this environment."""
    path = str(quothd).replace("%", "%%")
    return shipped(f"systemd/{name}", f"systemd/{name}").replace(
        SHIPPED_COMMAND, f'"{path}"' if " " in path else path
    )


def _refuse_without_root(user: bool, prefix: Path | None) -> None:
    """Raise `Refused` ``needs_root`` if this user may not write the files of the system."""
    if not user and prefix is None and os.geteuid() != 0:
        again = shlex.join(["sudo", sys.argv[0], *sys.argv[1:]])
        hint = f"{again}, or --user for one of your own"
        raise Refused("needs_root", "a service of the system belongs to root", hint)


def _print(printer: Printer, path: Path, done: str, *, dry_run: bool) -> None:
    would = "would be " if dry_run else ""
    printer.answer(f"{would}{done}: {path}", {"path": str(path), "done": done, "dry_run": dry_run})


def _next_steps(layout: Layout, *, user: bool) -> Iterator[str]:
    yield f"change {layout.config} as you like, then type"
    if not user:
        yield "  systemd-sysusers"
    yield f"  {layout.systemctl} daemon-reload"
    yield f"  {layout.systemctl} enable --now quothd"
    yield f"  {layout.systemctl} status quothd"
    if user:
        yield "  loginctl enable-linger             so that it goes on when you log out"
