"""Prints the figures of floods as a table: `python -m kit.floods.table [FLOOD ...]` in the folder `tests`.

Without names it measures each flood, and then all of them together. It asserts nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import zmq

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import FastPeer
from kit.floods.attacked_broker import Figures, attacked
from kit.floods.bounds import BOUNDED
from kit.floods.floods import FLOODS

TOGETHER = "together"
_HEADING = (
    "| flood | RSS before, peak, later (MiB) | peak after (s) | given back after (s) "
    "| p50 quiet, flooded (ms) | p99 quiet, flooded (ms) | ratio |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)


def main() -> None:
    """Measure the floods that are named."""
    print(_HEADING, flush=True)
    for name in sys.argv[1:] or (*FLOODS, TOGETHER):
        print(row(name, measure([*FLOODS] if name == TOGETHER else [name])), flush=True)


def measure(floods: list[str]) -> Figures:
    """Attack a new broker with some floods at once."""
    with TemporaryDirectory() as directory, zmq.Context() as context:
        broker = BrokerProcess(Path(directory) / "data", **BOUNDED)  # type: ignore[arg-type]
        try:
            broker.start()
            with FastPeer(context, broker.url) as peer, attacked(broker, peer) as under:
                return under.measure(floods)
        finally:
            broker.close()


def row(name: str, figures: Figures) -> str:
    """Return the row of a table."""
    sizes = [figures.before, figures.peak, figures.after]
    p50 = [figures.quiet.p50, figures.flooded.p50]
    p99 = [figures.quiet.p99, figures.flooded.p99]
    cells = (
        name,
        ", ".join(str(size >> 20) for size in sizes) + (" killed" if figures.is_killed else ""),
        f"{figures.peak_at:.1f}",
        f"{figures.settled_s:.1f}",
        ", ".join(f"{1_000 * seconds:.2f}" for seconds in p50),
        ", ".join(f"{1_000 * seconds:.2f}" for seconds in p99),
        f"{figures.ratio:.1f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
