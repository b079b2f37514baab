"""The service quothd on a booted machine: its state in systemd, and commands for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kit.deadlines import eventually
from kit.machine.commands import Ended
from kit.machine.machines import PROJECT, Machine

DROP_IN = "/etc/systemd/system/quothd.service.d/test.conf"
CONFIG = "/etc/quoth/quothd.toml"
OPERATIONS = PROJECT / "systemd" / "OPERATIONS.md"
START_S = 60.0


def readme_lines() -> list[str]:
    """Return the lines of README's "As a service", without their comments."""
    return _lines(blocks(PROJECT / "README.md", "## As a service", "sh"))


def operations_lines(title: str, row: int = 0) -> list[str]:
    """Return the lines of a block of commands in a section of OPERATIONS, without their comments."""
    return _lines([blocks(OPERATIONS, title, "sh")[row]])


def key_lines() -> tuple[list[str], str, str]:
    """Return what OPERATIONS says of keys: the lines to type, the configuration, the clients file."""
    config, clients = blocks(OPERATIONS, "### Keys", "toml")
    return _lines(blocks(OPERATIONS, "### Keys", "sh")), config, clients


def blocks(page: Path, title: str, language: str) -> list[str]:
    """Return the blocks of a language in a section of a document."""
    mark = title.partition(" ")[0]
    section = page.read_text().partition(f"{title}\n")[2].partition(f"\n{mark} ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def _lines(found: list[str]) -> list[str]:
    return [line.partition("  #")[0].strip() for block in found for line in block.splitlines()]


class Service:
    """The unit quothd. interpreter: of its environment. is_stale: its files were restored after its start."""

    def __init__(self, machine: Machine, interpreter: str = "/opt/quoth/bin/python") -> None:
        self.machine = machine
        self.interpreter = interpreter
        self.is_stale = False

    def run(self, script: str, *arguments: str, stdin: bytes = b"") -> Ended:
        ended = self.machine.run(script, *arguments, stdin=stdin)
        assert ended.status == 0, f"{script}\n{ended.out.decode()}\n{ended.err}"
        return ended

    def quoth(self, *arguments: str, stdin: bytes = b"") -> Ended:
        return self.run('exec quoth "$@"', *arguments, stdin=stdin)

    def python(self, code: str, *arguments: str) -> Any:
        """Run a program in the environment of the service, and return its output, which is JSON."""
        ended = self.run(
            'exec "$@"', self.interpreter, "-W", "error", "-c", f"import json, sys, quoth\n{code}", *arguments
        )
        return json.loads(ended.out)

    def values(self, topic: str) -> list[str]:
        return self.quoth("read", topic, "--format", "raw").lines

    def show(self, name: str) -> str:
        return self.run(f"systemctl show --property={name} --value quothd").out.decode().strip()

    @property
    def pid(self) -> int:
        """The process of the daemon, 0 if there is none."""
        return int(self.show("MainPID"))

    def journal(self, since: str) -> str:
        """Return the messages of the daemon, and of systemd about it, since a cursor."""
        typed = 'journalctl --sync; journalctl --unit=quothd --output=cat --after-cursor="$1"'
        return self.run(typed, since).out.decode()

    def cursor(self) -> str:
        """Return the cursor of the end of the journal."""
        output = self.run("journalctl --sync; journalctl --lines=1 --quiet --show-cursor").out.decode()
        return output.rpartition("-- cursor: ")[2].strip()

    def restart(self) -> Ended:
        """Restart the service, which may fail."""
        self.is_stale = False
        return self.machine.run(
            "systemctl reset-failed quothd; systemctl daemon-reload; systemctl restart quothd"
        )

    def eventually_serves(self) -> None:
        """Wait until the unit is active and the service answers."""
        eventually(lambda: self.show("ActiveState") == "active", "it is active", START_S)
        self.quoth("ping")

    @contextmanager
    def changed(self, path: str, text: str) -> Iterator[None]:
        """Replace the content of a file for a while. The service does not read it before its restart."""
        kept = self.run('mkdir -p "${1%/*}"; cat "$1" 2>/dev/null || true', path).out
        self.run('cat > "$1"', path, stdin=text.encode())
        try:
            yield
        finally:
            self.run('cat > "$1"; [ -s "$1" ] || rm "$1"', path, stdin=kept)
            self.is_stale = True
