"""`quoth service`: copies a unit, its user and its configuration to where systemd finds them; shows its log.

Installing only writes files, so it works without a running systemd, as packagers need it.
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

SHIPPED_IN = "/usr/bin"
"""Where the daemons are in the shipped units; `install` writes that of this environment."""
PACKAGED_IN = "usr/lib/systemd/system"
"""Where packages have their units; those that `install` writes go before them."""
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
_Web = Annotated[bool, option("--web", "The service of `quoth web` instead of the broker's.")]
_DryRun = Annotated[bool, option("--dry-run", "Say what would be done, and do nothing.")]


class Service(NamedTuple):
    """A service. name: of its program, its unit and its configuration file. users: the file with its user."""

    name: str
    users: str

    @property
    def unit(self) -> str:
        """The name of its unit."""
        return f"{self.name}.service"

    def configuration(self) -> str:
        """Return its configuration file, with every key commented out."""
        if self is WEB:
            from quothweb.config import example

            return example()
        from quothd.config import template

        return template.text()


BROKER, WEB = Service("quothd", "quoth"), Service("quoth-web", "quoth-web")


class Layout(NamedTuple):
    """The files of a service by their paths. enabled: the link that starts it at boot. data: "" for none."""

    files: dict[Path, str]
    config: Path
    enabled: Path
    systemctl: str
    data: str


app = group("The broker as a service of systemd: install, uninstall, log.")


@command(
    app,
    "install",
    "sudo quoth service install",
    "quoth service install --user",
    "sudo quoth service install --web",
    "quoth service install --prefix ./package --dry-run",
)
def install(
    session: WithoutBroker,
    *,
    web: _Web = False,
    user: _User = False,
    prefix: _Prefix = None,
    dry_run: _DryRun = False,
) -> None:
    """Copy the unit, the user and the configuration to their places.

    Nothing is started; what to type next is printed. A configuration that is there already is kept; changes
    of the unit belong into a drop-in: `systemctl edit quothd`. Exit status: 0 done, 1 root is needed, or the
    system has the service by a package, 3 the program is not beside this command.
    """
    _refuse_without_root(user, prefix)
    service = WEB if web else BROKER
    if not user and _is_packaged(service, prefix):
        text = f"the package has installed {service.unit}; a second unit would take its place"
        raise Refused("packaged", text, f"systemctl enable --now {service.name}; or remove the package first")
    scripts = Path(sysconfig.get_path("scripts"))
    if not (scripts / service.name).exists():
        hint = f"install Quoth into an environment: pip install 'quoth{'[web]' if web else ''}'"
        raise Refused("not_found", f"there is no {scripts / service.name}", hint, CommandStatus.NOT_FOUND)
    layout = _layout(service, scripts, user=user, prefix=prefix)
    printer = session.printer
    os.umask(0o022)  # the service reads the files as another user
    for path, text in layout.files.items():
        done = "kept" if path == layout.config and path.exists() else "written"
        if done == "written" and not dry_run:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        _print(printer, path, done, dry_run=dry_run)
    for line in _next_steps(service, layout, user=user):
        printer.answer(line, {"next": line})
    hidden = next((one for one in HIDDEN if scripts.resolve().is_relative_to(one)), None)
    if hidden is not None and not user:
        say(f"quoth: the service cannot start {scripts / service.name}: {hidden} is hidden from it")
        say("hint: install into an environment below /opt or /usr/local, and run its quoth; or use --user")


@command(app, "uninstall", "sudo quoth service uninstall", "quoth service uninstall --user")
def uninstall(
    session: WithoutBroker,
    *,
    web: _Web = False,
    user: _User = False,
    prefix: _Prefix = None,
    dry_run: _DryRun = False,
) -> None:
    """Remove the files that `install` has written.

    The data stays, and so does a configuration that was changed, or is that of a package. Exit status: 0
    done, 1 root is needed, or the service is still enabled.
    """
    _refuse_without_root(user, prefix)
    service = WEB if web else BROKER
    layout = _layout(service, Path(SHIPPED_IN), user=user, prefix=prefix)
    if os.path.lexists(layout.enabled):
        text = f"the service is enabled: {layout.enabled}"
        raise Refused("enabled", text, f"{layout.systemctl} disable --now {service.name}")
    printer, is_packaged = session.printer, not user and _is_packaged(service, prefix)
    for path, text in layout.files.items():
        if path.exists():
            is_changed = path.read_text("utf-8", "replace") != text
            is_kept = path == layout.config and (is_changed or is_packaged)
            if not (is_kept or dry_run):
                path.unlink()
            _print(printer, path, "kept" if is_kept else "removed", dry_run=dry_run)
    if layout.data:
        text = f"the data stays, if there is any: {layout.data}"
        printer.answer(text, {"path": layout.data, "done": "kept"})
    line = f"{layout.systemctl} daemon-reload"
    printer.answer(f"next: {line}", {"next": line})


@command(
    app,
    "logs",
    "quoth service logs",
    "quoth service logs --follow --since -1h",
    "quoth service logs --web --lines 20",
)
def logs(
    *,
    web: _Web = False,
    user: Annotated[bool, option("--user", "The log of a service of your own.")] = False,
    follow: Annotated[bool, option("-f --follow", "Go on with new lines, until Ctrl-C.")] = False,
    lines: Annotated[
        int | None, option("-n --lines N", "At most so many lines, the last ones (default: all).", min=0)
    ] = None,
    since: Annotated[
        str | None, option("--since TIME", "Lines from this time on: -1h, 2026-01-02T03:04:05Z.")
    ] = None,
) -> None:
    """Print the log of the service, by journalctl.

    A line is one event, with its name, as the program has logged it. Without --since it is the log since the
    start of the machine.
    """
    from shutil import which

    from quoth.timestamps import as_pointer

    program = which("journalctl")
    if program is None:
        hint = "a broker without systemd logs to its standard error"
        raise Refused("not_found", "there is no journalctl", hint, CommandStatus.NOT_FOUND)
    command_line = [
        program,
        "--user-unit" if user else "--unit",
        (WEB if web else BROKER).unit,
        "--output=cat",
    ]
    command_line += ["--quiet", "--no-pager"]
    command_line += [f"--since=@{as_pointer(since) / 1e6:.6f}"] if since is not None else ["--boot"]
    command_line += [f"--lines={lines}"] if lines is not None else []
    command_line += ["--follow"] if follow else []
    sys.stdout.flush()
    os.execv(program, command_line)  # its exit status, and what it does on Ctrl-C, are right


def _layout(service: Service, scripts: Path, *, user: bool, prefix: Path | None) -> Layout:
    program, name = scripts / service.name, service.name
    if user:
        home = config_home() if prefix is None else prefix / ".config"
        units, config = home / "systemd" / "user", home / "quoth" / f"{name}.toml"
        unit = _unit(f"user/{service.unit}", program)
        enabled = units / "default.target.wants" / service.unit
        data = "~/.local/share/quoth" if service is BROKER else ""
        files = {units / service.unit: unit, config: service.configuration()}
        return Layout(files, config, enabled, "systemctl --user", data)
    etc = (prefix or Path("/")) / "etc"
    units, config = etc / "systemd" / "system", etc / "quoth" / f"{name}.toml"
    users = f"systemd/{service.users}.sysusers"
    files = {
        units / service.unit: _unit(service.unit, program),
        etc / "sysusers.d" / f"{service.users}.conf": shipped(users, users),
        config: service.configuration(),
    }
    enabled = units / "multi-user.target.wants" / service.unit
    return Layout(files, config, enabled, "systemctl", "/var/lib/quoth" if service is BROKER else "")


def _unit(name: str, program: Path) -> str:
    """Return a unit that starts the program of this environment."""
    path = str(program).replace("%", "%%")
    written = f'"{path}"' if " " in path else path
    return shipped(f"systemd/{name}", f"systemd/{name}").replace(f"{SHIPPED_IN}/{program.name}", written)


def _is_packaged(service: Service, prefix: Path | None) -> bool:
    """Return True if a package has installed the unit of a service."""
    return ((prefix or Path("/")) / PACKAGED_IN / service.unit).exists()


def _refuse_without_root(user: bool, prefix: Path | None) -> None:
    """Raise `Refused` ``needs_root`` if this user may not write the files of the system."""
    if not user and prefix is None and os.geteuid() != 0:
        again = shlex.join(["sudo", sys.argv[0], *sys.argv[1:]])
        hint = f"{again}, or --user for one of your own"
        raise Refused("needs_root", "a service of the system belongs to root", hint)


def _print(printer: Printer, path: Path, done: str, *, dry_run: bool) -> None:
    would = "would be " if dry_run else ""
    printer.answer(f"{would}{done}: {path}", {"path": str(path), "done": done, "dry_run": dry_run})


def _next_steps(service: Service, layout: Layout, *, user: bool) -> Iterator[str]:
    yield f"change {layout.config} as you like, then type"
    if not user:
        yield "  systemd-sysusers"
    yield f"  {layout.systemctl} daemon-reload"
    yield f"  {layout.systemctl} enable --now {service.name}"
    yield f"  {layout.systemctl} status {service.name}"
    if user:
        yield "  loginctl enable-linger             so that it goes on when you log out"
