"""An outage of a broker under a job: it goes on within two seconds of its return."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.archives import of_archive, of_topic
from kit.brokers import StartBroker
from kit.deadlines import eventually
from quoth import Client
from quoth.spark.archive import archiver as archiver_module
from quoth.spark.archive.archiver import Archiver, Policy
from quoth.spark.workers import Here

RESUMED_S = 2.0


@pytest.mark.alone
def test_a_job_that_follows_goes_on_soon_though_it_looks_once_an_hour(
    start_broker: StartBroker, connect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker()
    client: Client = connect(broker)
    client.publish("orders", [b"a", b"b"])
    told: list[str] = []
    client.timeout = 1.0
    over = threading.Event()

    def sleep(seconds: float) -> None:
        if over.wait(seconds):
            raise InterruptedError

    monkeypatch.setattr(archiver_module, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    broker.kill()
    archiver = Archiver(client, tmp_path / "archive", Here(), "orders", Policy(), told.append)
    with ThreadPoolExecutor() as pool:
        try:
            following = pool.submit(archiver.follow, 3_600.0)
            eventually(lambda: len(told) > 1, "it has waited in vain, and again")
            broker.restart()
            began = time.monotonic()
            eventually(lambda: archiver.tally.records == 2, "all of it is archived")
            assert time.monotonic() - began < RESUMED_S
        finally:
            over.set()
    with pytest.raises(InterruptedError):
        following.result()
    assert of_archive(tmp_path / "archive") == of_topic(client, "orders")
