"""Outages as processes, several kinds at the same time; see `kit.client.outages`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from kit.client.outages import OF_A_NETWORK
from kit.machine.networks import OF_ITS_OWN

Figures = dict[str, dict[str, float]]
"""Seconds from the broker's return until a client was served, by the kind of the outage and the client."""


def served_after(seconds: Mapping[str, float], directory: Path, *program: Path) -> Figures:
    """Run an outage of each kind for so many seconds. program: see `kit.client.outages`."""
    trials = {kind: _start(kind, lasting, directory / kind, program) for kind, lasting in seconds.items()}
    return {kind: _figures(kind, trial, seconds[kind]) for kind, trial in trials.items()}


def late(figures: Figures, most: float) -> Figures:
    """Return the figures above so many seconds."""
    found = {
        kind: {name: waited for name, waited in times.items() if waited > most}
        for kind, times in figures.items()
    }
    return {kind: times for kind, times in found.items() if times}


def _start(kind: str, seconds: float, directory: Path, program: tuple[Path, ...]) -> subprocess.Popen[bytes]:
    directory.mkdir()
    what = kind, str(seconds), str(directory), *map(str, program)
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [
            *(OF_ITS_OWN if kind in OF_A_NETWORK else ()),
            *(sys.executable, "-W", "error", "-m", "kit.client.outages", *what),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )


def _figures(kind: str, trial: subprocess.Popen[bytes], seconds: float) -> dict[str, float]:
    out, _ = trial.communicate(timeout=seconds + 120)
    assert trial.returncode == 0
    figures: dict[str, float] = json.loads(out)
    print(kind, {name: round(waited, 3) for name, waited in figures.items()})
    return figures
