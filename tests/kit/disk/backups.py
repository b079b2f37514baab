"""A data directory and its backup, made by `quoth backup` and `quoth restore`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kit.machine.commands import Command

MANY = 600
"""Records of 500 to 1,500 bytes: enough segments that some are done half way."""
STOPS_HALF_WAY = """
import os, signal
from quothcli.commands.files import backup

shown = backup.byte_progress

def stopping(what, total, limit=None):
    done = 0

    def count(size):
        nonlocal done
        done += size
        if what != "checking" and done - size < total / 2 <= done:
            os.kill(os.getpid(), signal.SIGSTOP)

    return shown(what, total, count)

backup.byte_progress = stopping
"""
"""Stops a backup, or a restore, until SIGCONT when half of its bytes are done."""
KINDS = ("link", "pipe")
"""Things that can stand where a file has to be."""


class DataAndBackup:
    def __init__(self, command: Command, data: Path, to: Path) -> None:
        self.command = command
        self.data = data
        self.to = to

    def backup(self, *options: str, status: int = 0) -> list[Any]:
        """Back up; returns the objects of the topics."""
        result = self.command("backup", str(self.data), str(self.to), *options, "--format", "json")
        assert result.status == status, result
        return result.objects

    def restore(self, at: Path, *options: str, status: int = 0) -> list[Any]:
        """Restore and verify; returns the objects of the topics."""
        result = self.command("restore", str(self.to), str(at), *options, "--format", "json")
        assert result.status == status, result
        verified = self.command("log", "verify", str(at), "--format", "json")
        assert status or all(row["whole"] and not row["missing"] for row in verified.objects)
        return result.objects


def put_no_file(path: Path, kind: str, precious: Path) -> None:
    """Put a link or a pipe at a path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(precious) if kind == "link" else os.mkfifo(path)
