"""The benchmark of the C library, and its rows in `quoth bench ratio`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.broker.brokers import StartBroker
from kit.machine.commands import Ended
from quothbench.instruments import ratio
from quothbench.load import c_client
from quothbench.load.clients import Clients
from quothbench.load.keys import make_keys
from quothbench.load.servers import Target
from quothbench.report import Report
from quothcli.printing.output import Format, Printer


@pytest.mark.parametrize("with_keys", [False, True], ids=["without keys", "with keys"])
def test_writing_and_reading_have_a_row_each(
    built: Path,
    start_broker: StartBroker,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    with_keys: bool,
) -> None:
    report = Report(Printer(Format.JSON), "ratio", {}, ratio.COLUMNS)
    keys = make_keys(tmp_path) if with_keys else None
    broker = start_broker(**({} if keys is None else keys.settings))
    with Clients(1) as clients:
        bench = ratio.RatioBench(Target(broker.url), clients, tmp_path, report, 3, keys=keys)
        bench.c_client(built / "bench" / "quoth-c-ratio", batches=20)
    _, *rows = Ended(0, capsysbinary.readouterr().out, "").objects
    assert [row["figure"] for row in rows] == list(ratio.C_CLIENT)
    for row in rows:
        assert row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"]
        assert row["quoth"]["low"] > 0
        assert (row["required"], row["aim"]) == (0.85, 0.95)


def test_reason_is_given_where_it_cannot_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(c_client.NotBuilt, match="no cc and no cmake and no pkg-config"):
        c_client.build(tmp_path / "build")
    monkeypatch.undo()
    monkeypatch.setattr(c_client, "LIBRARY", tmp_path)
    monkeypatch.setattr(c_client, "_TOOLS", ())
    with pytest.raises(c_client.NotBuilt, match="no sources of libquoth"):
        c_client.build(tmp_path / "build")


def test_first_error_of_a_build_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in c_client._TOOLS:
        (tmp_path / name).write_text("#!/bin/sh\necho no luck >&2\necho more >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(c_client.NotBuilt, match=r"^libquoth cannot be built: no luck$"):
        c_client.build(tmp_path / "build")
