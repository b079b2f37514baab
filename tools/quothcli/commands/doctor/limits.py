"""Checks of what the machine allows a broker: descriptors, memory, tasks."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from quothcli.commands.doctor import Finding, Findings, ok, warn
from quothcli.printing.text import bytes_text

if TYPE_CHECKING:
    from quothd.config.config import Config


_GROUPS = Path("/sys/fs/cgroup")
_UNLIMITED_FROM = 2**60
"""The first version of control groups has a large number where there is no limit."""
_TASKS_BESIDE = 100
"""The broker's own threads, and the processes of the rules and of the check of segments."""


def check(config: Config, pid: int | None) -> Findings:
    """Check the limits. pid: of a broker that runs here."""
    yield _descriptors(config, pid)
    if pid is not None and Path(f"/proc/{pid}/cgroup").exists():
        yield _memory(pid)
        yield _tasks(config, pid)


def _descriptors(config: Config, pid: int | None) -> Finding:
    """Check the limit of open files. A broker raises it to the hard one."""
    from quothd.service.descriptors import TOPIC_DESCRIPTORS, topics_that_fit

    whose, limit = "a broker started here", resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if pid is not None and (found := _open_files(pid)) is not None:
        whose, limit = f"process {pid}", found
    if limit in (-1, resource.RLIM_INFINITY):
        return ok("descriptors", f"{whose} may open any number of files")
    need, fit = 2 * TOPIC_DESCRIPTORS * config.workers_max, topics_that_fit(config.workers_max, limit)
    text = f"{whose} may open {limit:,} files, half of them for active topics: {fit} of {config.workers_max}"
    if fit >= config.workers_max:
        return ok("descriptors", text)
    advice = f"ulimit -n {need}, or LimitNOFILE={need} in the unit; until then topics take turns"
    return warn("descriptors", text, advice)


def _open_files(pid: int) -> int | None:
    """Return how many files another process may open; -1: any number; None: unknown."""
    try:
        text = Path(f"/proc/{pid}/limits").read_text()
    except OSError:
        return None
    found = re.search(r"^Max open files\s+(\d+|unlimited)", text, re.MULTILINE)
    return None if found is None else -1 if found[1] == "unlimited" else int(found[1])


def _memory(pid: int) -> Finding:
    limit = _group_limit(pid, "memory", ("memory.max", "memory.limit_in_bytes"))
    if limit is None:
        advice = "MemoryMax=50% in the unit, or a limit of the container, protects other programs"
        return warn("memory", f"process {pid} has no limit of memory", advice)
    return ok("memory", f"process {pid} may have {bytes_text(limit)} of memory, cached files included")


def _tasks(config: Config, pid: int) -> Finding:
    limit, need = _group_limit(pid, "pids", ("pids.max",)), config.workers_max + _TASKS_BESIDE
    if limit is None:
        return ok("tasks", f"process {pid} may have any number of threads")
    text = f"process {pid} may have {limit:,} threads and processes, {need:,} are needed"
    if limit >= need:
        return ok("tasks", text)
    return warn("tasks", text, f"TasksMax={2 * need} in the unit, or fewer --workers-max")


def _group_limit(pid: int, controller: str, names: tuple[str, ...]) -> int | None:
    """Return the lowest limit of the control groups of a process, None if there is none."""
    limits = (_limit_in(group / name) for group in _groups_of(pid, controller) for name in names)
    return min((limit for limit in limits if limit < _UNLIMITED_FROM), default=None)


def _groups_of(pid: int, controller: str) -> Iterator[Path]:
    """Yield the folders of the control groups of a process, of both versions, and of those above them."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return
    for number, controllers, path in (line.split(":", 2) for line in lines):
        if number == "0" or controller in controllers.split(","):
            root = _GROUPS if number == "0" else _GROUPS / controller
            inner = Path(path.lstrip("/"))
            yield from (root / each for each in (inner, *inner.parents))


def _limit_in(path: Path) -> int:
    """Return the number in a file; a large one if there is none."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max"
        return _UNLIMITED_FROM
