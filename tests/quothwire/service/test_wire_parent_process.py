"""Processes of the broker, which end without a word once it has ended."""

from __future__ import annotations

import os
import subprocess
import sys

from kit.machine.commands import COMMAND_S

REPORTS = (
    "from quothwire.service.parent_process import report; report('counted', count=1); exit('it goes on')"
)


def test_a_report_that_no_broker_reads_any_more_ends_the_process() -> None:
    """Also before the child has noticed the end of the broker in another way."""
    read, write = os.pipe()
    os.close(read)
    try:
        child = subprocess.run(
            [sys.executable, "-c", REPORTS],
            stdout=write,
            stderr=subprocess.PIPE,
            timeout=COMMAND_S,
            check=False,
        )
    finally:
        os.close(write)
    assert (child.returncode, child.stderr) == (0, b"")
