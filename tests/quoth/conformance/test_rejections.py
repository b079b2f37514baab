"""Every client reports a refused key and a missing right at once and in one line, at one broker process."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quoth
import quoth.aio
from kit.broker.brokers import BrokerProcess
from kit.client.keyed import AT_ONCE_S, FOREVER_S, KeyedBroker
from kit.deadlines import eventually
from kit.keys import KeyFiles, new_key
from kit.machine.commands import COMMAND, COMMAND_S
from kit.machine.cprograms import ENVIRONMENT, shared_library
from kit.machine.forkserver import start
from kit.spark.sparks import SPARK_TEST_S
from kit.text.wording import error_of

TOPIC = "orders"
SECONDS = f"{FOREVER_S:.0f}"
"""The timeout of a program."""
HANDSHAKES_MAX = 12
"""In a second: more than the processes of a Spark job connect before the first error. A retry would soon
exceed it. While a busy machine keeps a client from hearing of the rejection, libzmq goes on connecting."""

Connected = Callable[[], None]
"""Called by a client once it has read or published a record. It goes on after that until it is refused."""
Client = Callable[[KeyedBroker, Path | None, Connected], str]
"""Uses a broker until it is refused, and returns the line that says so."""


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedBroker]:
    """The broker of all these tests, with a record in its topic."""
    folder = tmp_path_factory.mktemp("keyed")
    process = BrokerProcess(folder / "data")

    def started(**settings: object) -> BrokerProcess:
        process.settings |= settings
        return process.start()

    try:
        keyed = KeyedBroker(started, KeyFiles(folder))
        with quoth.connect(keyed.url, key=keyed.owner) as client:
            client.publish(TOPIC, [b"one"])
        yield keyed
    finally:
        process.end()


# -- the clients --------------------------------------------------------------------------------------------


def blocking(keyed: KeyedBroker, key: Path | None, connected: Connected) -> str:
    def follow() -> None:
        with quoth.connect(keyed.url, key=key, timeout=FOREVER_S) as client:
            for _ in client.tail(TOPIC, after=0):
                connected()

    return str(error_of(follow))


def in_event_loop(keyed: KeyedBroker, key: Path | None, connected: Connected) -> str:
    async def follow() -> None:
        async with quoth.aio.connect(keyed.url, key=key, timeout=FOREVER_S) as client:
            async for _ in client.tail(TOPIC, after=0):
                connected()

    return str(error_of(lambda: asyncio.run(follow())))


def quoth_tail(keyed: KeyedBroker, key: Path | None, connected: Connected, library: Path) -> str:
    options = ["-t", SECONDS, *(["-k", key] if key else [])]
    return _followed([library / "examples/quoth-tail", *options, keyed.url, TOPIC], connected)


def quoth_pub(keyed: KeyedBroker, key: Path | None, connected: Connected, library: Path) -> str:
    options = ["-t", SECONDS, *(["-k", key] if key else [])]
    command = [str(word) for word in (library / "examples/quoth-pub", *options, keyed.url, TOPIC)]
    with (
        quoth.connect(keyed.url, key=keyed.owner) as beside,
        subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stderr is not None
        before = len(beside.read(TOPIC))

        def is_stored_or_over() -> bool:
            return process.poll() is not None or len(beside.read(TOPIC)) > before

        try:
            process.stdin.write(b"two\n")
            eventually(is_stored_or_over, "the record is stored")
            if process.poll() is None:
                connected()
                process.stdin.write(b"three\n")
        except BrokenPipeError:
            pass  # it was refused before
        return the_error_in(process.stderr.read().decode())


def the_error_in(text: str) -> str:
    """Return the only line with a code: the others say what to do, and where to go on."""
    (line,) = [line for line in text.splitlines() if "auth_failed" in line or "denied" in line]
    return line


def command(keyed: KeyedBroker, key: Path | None, connected: Connected) -> str:
    options = ["--timeout", SECONDS, *(["--key-file", str(key)] if key else [])]
    line = [*COMMAND, "tail", TOPIC, "--after", "0", "--url", keyed.url, *options]
    return _followed(line, connected)


def _followed(command: list[Any], connected: Connected) -> str:
    """Run a program that prints the records of the topic; returns the only line with its error."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start([str(word) for word in command], env=ENVIRONMENT, **streams) as process:
        assert process.stdout is not None
        if process.stdout.readline():
            connected()
        _, err = process.communicate(timeout=COMMAND_S)
    assert process.returncode == 1
    return the_error_in(err.decode())


def spark_job(keyed: KeyedBroker, key: Path | None, connected: Connected, spark: Any) -> str:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from quoth.spark.jobs.reasons import reason

    options = {"url": keyed.url, "subscribe": TOPIC, "startingOffsets": "earliest"}
    options |= {"key": str(key)} if key else {}
    try:
        stream = spark.readStream.format("quoth").options(**options).load()
        query = stream.writeStream.format("noop").start()
        query.processAllAvailable()
        connected()
        query.awaitTermination()
    except (PySparkException, Py4JError) as problem:
        return reason(problem, spark)
    raise AssertionError("it goes on")


# -- rejections ---------------------------------------------------------------------------------------------


def unknown_key(keyed: KeyedBroker) -> Path | None:
    return keyed.mallory


def no_key(_keyed: KeyedBroker) -> Path | None:
    return None


def known_key(keyed: KeyedBroker) -> Path | None:
    keyed.allow()
    return keyed.alice


def key_without_rights(keyed: KeyedBroker) -> Path | None:
    key = new_key("carol", keyed.server)
    keyed.files.allow(key, topics="")
    keyed.reload()
    return keyed.files.write_key(key)


REJECTIONS = {
    "unknown key": (unknown_key, "auth_failed"),
    "no key": (no_key, "auth_failed"),
    "key that is revoked while it is connected": (known_key, "auth_failed"),
    "key without the right": (key_without_rights, "denied"),
}
CLIENTS: dict[str, tuple[Callable[..., str], str]] = {
    "quoth": (blocking, ""),
    "quoth.aio": (in_event_loop, ""),
    "quoth-tail": (quoth_tail, "library"),
    "quoth-pub": (quoth_pub, "library"),
    "the command": (command, ""),
    "spark": (spark_job, "spark"),
}
"""Each client, and the fixture that it needs."""
ALONE = {"spark": [pytest.mark.spark, pytest.mark.timeout(SPARK_TEST_S)]}


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of libquoth and its programs."""
    with shared_library(tmp_path_factory) as folder:
        return folder


@pytest.mark.parametrize("name", [pytest.param(name, marks=ALONE.get(name, [])) for name in CLIENTS])
@pytest.mark.parametrize("rejection", REJECTIONS)
def test_every_client_reports_a_rejection_at_once_in_one_line_with_its_code(
    request: pytest.FixtureRequest, keyed: KeyedBroker, name: str, rejection: str
) -> None:
    prepare, code = REJECTIONS[rejection]
    use, needs = CLIENTS[name]
    more = [request.getfixturevalue(needs)] if needs else []
    key = prepare(keyed)
    handshakes = failed_handshakes(keyed)
    began = [time.monotonic()]

    def revoke() -> None:
        assert prepare is known_key, "it was not refused"
        keyed.revoke()
        began.append(time.monotonic())

    line = use(keyed, key, revoke, *more)
    taken_s = time.monotonic() - began[-1]
    assert len(began) == 1 + (prepare is known_key)
    assert f"{code}: " in line
    assert "\n" not in line
    assert failed_handshakes(keyed) - handshakes <= HANDSHAKES_MAX * max(1.0, taken_s)
    assert name == "spark" or taken_s < AT_ONCE_S


def failed_handshakes(keyed: KeyedBroker) -> int:
    """Return how often clients were refused so far."""
    with quoth.connect(keyed.url, key=keyed.owner) as client:
        counters = client.status().counters
        return int(counters["connections_denied"] + counters["handshakes_failed"])
