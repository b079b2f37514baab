"""`quoth service`: put the broker's unit, its user and its configuration where systemd finds them.

Only files are written, so it works without a running systemd, as packagers need it. Each file begins with a
line that holds its checksum: one that somebody has changed since is recognized, kept, and told.
"""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from quothcli.cli.command import command, group
from quothcli.cli.exit_status import Status, complain, say
from quothcli.cli.options import Form
from quothcli.cli.session import chosen
from quothcli.cli.xdg_paths import config_home
from quothcli.printing.output import Printer

UNIT = "quothd.service"
SHIPPED_COMMAND = "/usr/bin/quothd"
"""As it stands in the units, in the place of this environment's."""
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
"""What ProtectHome and PrivateTmp keep from the service."""
MARK = (
    "# Put here by `quoth service install` ({}), and taken away by `quoth service uninstall` unless changed."
)

_User = Annotated[
    bool, typer.Option("--user", help="A service of your own, without root and without sandbox.")
]
_Prefix = Annotated[
    Path | None,
    typer.Option(
        "--prefix",
        metavar="DIR",
        help="Take this directory for / (with --user, for your home), to look or to make a package.",
    ),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


class Part(NamedTuple):
    """A file of the service: where it belongs, and what it should hold."""

    path: Path
    text: str

    @property
    def content(self) -> str:
        """The text, below a line with its checksum."""
        return f"{MARK.format(_checksum(self.text))}\n{self.text}"

    @property
    def is_there(self) -> bool:
        """Does something lie there?"""
        return os.path.lexists(self.path)

    @property
    def is_ours(self) -> bool:
        """Is it as some installation has put it there?"""
        mark, _, text = self.path.read_text("utf-8", "replace").partition("\n")
        return mark == MARK.format(_checksum(text))


class Plan(NamedTuple):
    """What belongs to a service. enabled: the link that starts it at boot; systemctl: how to speak to it."""

    parts: tuple[Part, ...]
    enabled: Path
    systemctl: str
    data: str


def add(app: typer.Typer) -> None:
    """Put `service` into the command."""
    made = group("The broker as a service of systemd: install, uninstall.")
    app.add_typer(made, name="service")
    command(
        made,
        "install",
        "sudo quoth service install",
        "quoth service install --user",
        "quoth service install --prefix ./package --dry-run",
    )(install)
    command(made, "uninstall", "sudo quoth service uninstall", "quoth service uninstall --user")(uninstall)


def install(
    context: typer.Context,
    *,
    user: _User = False,
    prefix: _Prefix = None,
    dry_run: _DryRun = False,
    form: Form = None,
) -> int:
    """Put the unit, the user and the configuration in place.

    Nothing is started; what to type next is printed. A file that was changed since is kept. Exit status: 0
    done, 1 it may not be done, 3 there is no quothd beside this command.
    """
    if _needs_root(user, prefix):
        return Status.FAILED
    quothd = Path(sysconfig.get_path("scripts")) / "quothd"
    if not quothd.exists():
        complain("not_found", f"there is no {quothd}", "install Quoth into an environment: pip install quoth")
        return Status.NOT_FOUND
    printer = Printer(chosen(context, form=form).format)
    plan = _plan(quothd, user=user, prefix=prefix)
    for part in plan.parts:
        _tell(printer, part, _put(part, dry_run=dry_run), dry_run=dry_run)
    for line in _next_steps(plan, user=user):
        printer.answer(line, {"next": line})
    if not user:
        _warn_of_hidden(quothd)
    return Status.DONE


def uninstall(
    context: typer.Context,
    *,
    user: _User = False,
    prefix: _Prefix = None,
    dry_run: _DryRun = False,
    form: Form = None,
) -> int:
    """Take away what `install` has put there, and nothing else.

    The data stays, and so does every file that was changed since. Exit status: 0 done, 1 it may not be
    done, or the service is still enabled.
    """
    if _needs_root(user, prefix):
        return Status.FAILED
    plan = _plan(Path(SHIPPED_COMMAND), user=user, prefix=prefix)
    if os.path.lexists(plan.enabled):
        complain(
            "enabled", f"the service is enabled: {plan.enabled}", f"{plan.systemctl} disable --now quothd"
        )
        return Status.FAILED
    printer = Printer(chosen(context, form=form).format)
    for part in plan.parts:
        if part.is_there:
            _tell(printer, part, _take(part, dry_run=dry_run), dry_run=dry_run)
    printer.answer(f"the data stays, if there is any: {plan.data}", {"path": plan.data, "done": "kept"})
    printer.answer(f"next: {plan.systemctl} daemon-reload", {"next": f"{plan.systemctl} daemon-reload"})
    return Status.DONE


# -- the files ------------------------------------------------------------------------------------------


def _plan(quothd: Path, *, user: bool, prefix: Path | None) -> Plan:
    from quothd.config import template

    if user:
        config = config_home() if prefix is None else prefix / ".config"
        units = config / "systemd" / "user"
        parts: tuple[Part, ...] = (
            Part(units / UNIT, _unit(f"user/{UNIT}", quothd)),
            Part(config / "quoth" / "quothd.toml", template.text()),
        )
        enabled = units / "default.target.wants" / UNIT
        return Plan(parts, enabled, "systemctl --user", "~/.local/share/quoth")
    root = prefix or Path("/")
    units = root / "etc" / "systemd" / "system"
    parts = (
        Part(units / UNIT, _unit(UNIT, quothd)),
        Part(root / "etc" / "sysusers.d" / "quoth.conf", _shipped("quoth.sysusers")),
        Part(root / "etc" / "quoth" / "quothd.toml", template.text()),
    )
    return Plan(parts, units / "multi-user.target.wants" / UNIT, "systemctl", "/var/lib/quoth")


def _unit(name: str, quothd: Path) -> str:
    """A unit that starts the quothd of this environment."""
    path = str(quothd).replace("%", "%%")
    return _shipped(name).replace(SHIPPED_COMMAND, f'"{path}"' if " " in path else path)


def _shipped(name: str) -> str:
    """A file of the folder systemd: in the package once that is built, beside tools/ in a checkout."""
    here = Path(__file__).resolve()
    built = here.parents[2] / "systemd" / name
    return (built if built.exists() else here.parents[4] / "systemd" / name).read_text("utf-8")


def _checksum(text: str) -> str:
    import xxhash

    return xxhash.xxh3_64_hexdigest(text.encode("utf-8", "replace"))


def _put(part: Part, *, dry_run: bool) -> str:
    """Put a file in place, whole or not at all; returns what was done."""
    if part.is_there and not part.is_ours:
        return "kept"
    if part.is_there and part.path.read_text("utf-8") == part.content:
        return "unchanged"
    done = "replaced" if part.is_there else "written"
    if not dry_run:
        _make_directory(part.path.parent)
        beside = part.path.with_name(f".{part.path.name}.new")
        beside.write_text(part.content, "utf-8")
        beside.chmod(0o644)  # whatever the umask is: the service reads it as another user
        beside.replace(part.path)
    return done


def _make_directory(path: Path) -> None:
    if not path.is_dir():
        _make_directory(path.parent)
        path.mkdir()
        path.chmod(0o755)


def _take(part: Part, *, dry_run: bool) -> str:
    """Take a file away; returns what was done."""
    if not part.is_ours:
        return "kept"
    if not dry_run:
        part.path.unlink()
        if part.path.parent.name == "quoth" and not any(part.path.parent.iterdir()):
            part.path.parent.rmdir()
    return "removed"


# -- what is said ---------------------------------------------------------------------------------------


def _needs_root(user: bool, prefix: Path | None) -> bool:
    """Complain if the files of the system cannot be written by this user."""
    if user or prefix is not None or os.geteuid() == 0:
        return False
    again = shlex.join(["sudo", sys.argv[0], *sys.argv[1:]])
    complain(
        "needs_root", "a service of the system belongs to root", f"{again}, or --user for one of your own"
    )
    return True


def _tell(printer: Printer, part: Part, done: str, *, dry_run: bool) -> None:
    """Say what was done with a file, or would be."""
    reason = {"kept": ", since it was changed", "unchanged": ", it is as it should be"}.get(done, "")
    would = "would be " if dry_run else ""
    content = {"path": str(part.path), "done": done, "dry_run": dry_run}
    printer.answer(f"{would}{done}{reason}: {part.path}", content)


def _next_steps(plan: Plan, *, user: bool) -> Iterator[str]:
    """What to type now."""
    yield f"change {plan.parts[-1].path} as you like, then type"
    if not user:
        yield f"  systemd-sysusers {plan.parts[1].path}"
    yield f"  {plan.systemctl} daemon-reload"
    yield f"  {plan.systemctl} enable --now quothd"
    yield f"  {plan.systemctl} status quothd"
    if user:
        yield "  loginctl enable-linger             so that it goes on when you log out"


def _warn_of_hidden(quothd: Path) -> None:
    """The sandbox of the service must not hide the program itself."""
    for path in dict.fromkeys((quothd, Path(sys.base_prefix))):
        hidden = next((one for one in HIDDEN if path.resolve().is_relative_to(one)), None)
        if hidden is not None:
            say(f"quoth: the service cannot start {path}: {hidden} is hidden from it")
            say(
                "hint: install into an environment below /opt or /usr/local, and run its quoth; or use --user"
            )
