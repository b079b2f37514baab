"""`quoth generate`: writes files for programs that watch the broker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from quothcli.cli.command import argument, command, group, option
from quothcli.cli.exit_status import Refused
from quothcli.cli.options import WithoutBroker
from quothcli.cli.session import Session

_Folder = Annotated[Path, argument("DIR", "Where the files are written (default: the current directory).")]
_Force = Annotated[bool, option("--force", "Replace files of these names.")]

app = group("Write files for Prometheus and Grafana.")


@command(
    app,
    "prometheus",
    "quoth generate prometheus",
    "quoth generate prometheus /etc/prometheus --target 10.0.0.7:8080 --token-file /etc/prometheus/token",
)
def prometheus(
    session: WithoutBroker,
    folder: _Folder = Path(),
    target: Annotated[
        str, option("--target HOST:PORT", "The address of `quoth web` (default: 127.0.0.1:8080).")
    ] = "127.0.0.1:8080",
    token_file: Annotated[
        Path | None, option("--token-file FILE", "A file with the token, if `quoth web` has tokens.")
    ] = None,
    interval: Annotated[str, option("--interval SPAN", "Time between two scrapes (default: 15s).")] = "15s",
    force: _Force = False,
) -> None:
    """Write what Prometheus scrapes of `quoth web`, and alerts.

    quoth-prometheus.yml is a configuration that scrapes `quoth web` and names the alerts, quoth-alerts.yml
    has these. Start Prometheus with the first one, or copy its entries into the configuration that you have.
    """
    from quothcli.generated.prometheus import ALERTS_FILE, alerts_text, configuration_text

    files = {
        "quoth-prometheus.yml": configuration_text(target, token_file, interval),
        ALERTS_FILE: alerts_text(),
    }
    _write(session, folder, files, force=force)


@command(
    app, "grafana", "quoth generate grafana", "quoth generate grafana /var/lib/grafana/dashboards --force"
)
def grafana(session: WithoutBroker, folder: _Folder = Path(), force: _Force = False) -> None:
    """Write a dashboard for Grafana.

    quoth-dashboard.json is imported by Dashboards, New, Import, or provisioned. It asks a Prometheus that
    scrapes `quoth web`.
    """
    from quothcli.generated.grafana import dashboard

    _write(session, folder, {"quoth-dashboard.json": json.dumps(dashboard(), indent=2) + "\n"}, force=force)


def _write(session: Session, folder: Path, files: Mapping[str, str], *, force: bool) -> None:
    """Write files, all or none of them. Raises `Refused` ``exists``."""
    there = [name for name in files if (folder / name).exists()]
    if there and not force:
        text = f"{', '.join(str(folder / name) for name in there)}: there already"
        raise Refused("exists", text, "nothing was written; --force replaces it")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
        session.printer.answer(f"written: {folder / name}", {"path": str(folder / name)})
