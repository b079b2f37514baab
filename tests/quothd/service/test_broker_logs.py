"""The log: one event a line, stable names, no content of records, and no flood."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, on_stderr
from kit.broker.peers import Peers, code_of, hibernate
from kit.deadlines import DEADLINE_S, eventually
from kit.machine.ports import free_port
from quothd import Broker
from quothd.config.config import LOG_LEVELS
from quothd.service import log_events
from quothd.service.log_events import EVENTS, LOGGER, PROGRAM, note
from quothwire import batch, pointer
from quothwire.protocol.messages import Publish
from quothwire.service.log_event import FOREIGN, line_of
from quothwire.service.log_writer import REPEATS_MAX, EventWriter, LogTimer, configure, to_journal

QUOTHD = Path(log_events.__file__).parents[1]
QUOTHRULES = QUOTHD.with_name("quothrules")
LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) (?P<level>\w+) event=(?P<event>\w+)( |$)"
)


# -- the table --------------------------------------------------------------------------------------------


def test_the_table_lists_exactly_the_events_of_the_code() -> None:
    """Except for the event of other libraries. The code has no other call of logging.

    The process of the rules has its broker log what it reports.
    """
    texts = {path.name: path.read_text() for path in QUOTHD.rglob("*.py")}
    ours = [text for name, text in texts.items() if name != "log_events.py"]
    assert not any(re.search(r"^(import|from) logging", text, re.MULTILINE) for text in ours)
    noted = {name for text in ours for name in re.findall(r'\bnote\(\s*"(\w+)"', text)}
    assert noted <= set(EVENTS)
    reported = [path.read_text() for path in QUOTHRULES.rglob("*.py")]
    for name in set(EVENTS) - noted - {FOREIGN}:
        assert any(f'"{name}"' in text for text in (*ours, *reported)), name
    for name, event in EVENTS.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
        assert event.meaning
        assert logging.getLevelName(event.level).lower() in LOG_LEVELS


# -- lines ------------------------------------------------------------------------------------------------


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def writer(stream: io.StringIO) -> Iterator[EventWriter]:
    """Write the log of this process to `stream`."""
    root = logging.getLogger()
    level = root.level
    writer = EventWriter(PROGRAM, stream)
    root.addHandler(writer)
    configure(writer, "debug", "text")
    yield writer
    root.removeHandler(writer)
    root.setLevel(level)
    writer.close()


def lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_a_line_of_text_is_a_time_a_level_an_event_and_its_fields(
    writer: EventWriter, stream: io.StringIO
) -> None:
    """The time is UTC, in microseconds, like a pointer."""
    before = time.time_ns() // 1_000
    note("retained", topic="orders", records=3, bytes=4_096)
    (line,) = lines(stream)
    found = LINE.match(line)
    assert found is not None
    assert found["level"] == "info"
    assert line.endswith("event=retained topic=orders records=3 bytes=4096")
    assert before - 1 <= pointer.parse(found["time"], 0) <= time.time_ns() // 1_000


VALUES: list[tuple[Any, str]] = [
    ("plain", "plain"),
    ("/a/b-c.seg", "/a/b-c.seg"),
    ("two words", '"two words"'),
    ("", '""'),
    ('say "so"', '"say \\"so\\""'),
    ("a\nevent=forged", '"a\\nevent=forged"'),
    ("\x1b[31mred", '"\\u001b[31mred"'),
    ("\x9b31m", '"\\u009b31m"'),
    ("grün", '"grün"'),
    (b"\xff".decode(errors="surrogateescape"), '"\\udcff"'),
    (("a", "b"), "a,b"),
    (7, "7"),
    (Path("/a b"), '"/a b"'),
]


def test_a_value_is_one_word_without_control_characters(writer: EventWriter, stream: io.StringIO) -> None:
    """A name of a file or a topic ends no line. A line of JSON is an object with the same fields."""
    writer.window_s = 0.0  # no event is cut
    for value, shown in VALUES:
        configure(writer, "debug", "text")
        note("stray_ignored", file=value)
        assert lines(stream)[-1].endswith(f" event=stray_ignored file={shown}")
        configure(writer, "debug", "json")
        note("stray_ignored", file=value)
        content = json.loads(lines(stream)[-1])
        assert LINE.match(f"{content.pop('time')} {content['level']} event={content['event']} ")
        expected = (
            value if isinstance(value, int) else list(value) if isinstance(value, tuple) else str(value)
        )
        assert content == {"level": "warning", "event": "stray_ignored", "file": expected}


def test_a_traceback_is_a_field(writer: EventWriter, stream: io.StringIO) -> None:
    """One event, one line."""
    for form in ("text", "json"):
        configure(writer, "info", form)
        try:
            raise RuntimeError("a defect\nof two lines")
        except RuntimeError as problem:
            note("topic_failed", problem, topic="t", problem="internal")
        assert "Traceback (most recent call last)" in lines(stream)[-1]
        assert "a defect" in lines(stream)[-1]
    assert len(lines(stream)) == 2


def test_events_below_the_level_are_not_written(writer: EventWriter, stream: io.StringIO) -> None:
    for row, level in enumerate(LOG_LEVELS):
        before = len(lines(stream))
        configure(writer, level, "json")
        for name in ("topic_slept", "retained", "stray_ignored", "sync_failed"):
            note(name)
        assert [json.loads(line)["level"] for line in lines(stream)[before:]] == list(LOG_LEVELS[row:])


def test_a_record_of_another_library_is_an_event(writer: EventWriter, stream: io.StringIO) -> None:
    """One whose arguments do not fit is written as it is."""
    logging.getLogger("other.library").warning("it is %s", "late\nagain")
    writer.handle(logging.LogRecord("other.library", logging.WARNING, "", 0, "%d files", ("many",), None))
    fitting, other = lines(stream)
    assert fitting.endswith(' warning event=message logger=other.library text="it is late\\nagain"')
    assert "'%d files' ('many',)" in other


def test_a_message_for_people_is_one_line(writer: EventWriter, stream: io.StringIO) -> None:
    """No name in it ends the line."""
    spoken = {name: event.sentence for name, event in EVENTS.items() if event.sentence}
    for name, sentence in spoken.items():
        note(name, **{field: f"\x1b{field}\n" for field in re.findall(r"{(\w+)}", sentence)})
    assert len(lines(stream)) == len(spoken)
    assert all(line.startswith("quothd: ") and line.isprintable() for line in lines(stream))


# -- repeats ----------------------------------------------------------------------------------------------


def test_an_event_that_repeats_itself_is_cut_and_counted(writer: EventWriter, stream: io.StringIO) -> None:
    """The count is written after the window, without another event; other events are not cut."""
    waits, all_are_logged = list[float](), threading.Event()

    def timer(seconds: float, end: Callable[[], None]) -> LogTimer:
        def end_it() -> None:
            all_are_logged.wait(DEADLINE_S)
            end()

        waits.append(seconds)
        return PROGRAM.timer(0.0, end_it)

    writer._program = PROGRAM._replace(timer=timer)
    writer.window_s = 1_000.0
    for number in range(REPEATS_MAX + 123):
        note("sync_failed", topic=f"t{number}")
    note("stray_ignored", file="x")
    assert "suppressed" not in stream.getvalue()
    all_are_logged.set()
    eventually(lambda: "suppressed=123" in stream.getvalue(), "the rest is counted")
    written = lines(stream)
    assert sum("topic=t" in line for line in written) == REPEATS_MAX
    assert sum("event=stray_ignored" in line for line in written) == 1
    (count,) = (line for line in written if "suppressed" in line)
    assert count.endswith("error event=sync_failed suppressed=123")
    (seconds,) = waits
    assert 900.0 < seconds <= 1_000.0


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_repeated_record_of_another_library_is_cut_and_counted_at_the_end(
    writer: EventWriter, stream: io.StringIO, form: str
) -> None:
    writer.window_s = 1_000.0
    configure(writer, "info", form)
    for _ in range(REPEATS_MAX + 5):
        logging.getLogger("other.library").warning("again")
    writer.close()
    written = lines(stream)
    assert len(written) == REPEATS_MAX + 1
    assert all(word in written[-1] for word in ("message", "other.library", "suppressed", "5"))


# -- the journal ------------------------------------------------------------------------------------------


def test_a_line_for_the_journal_begins_with_its_priority(stream: io.StringIO, tmp_path: Path) -> None:
    """JOURNAL_STREAM has the device and the inode of the stream."""
    with (tmp_path / "stream").open("w") as file:
        status = os.fstat(file.fileno())
        name = f"{status.st_dev}:{status.st_ino}"
        assert to_journal(file, {"JOURNAL_STREAM": name})
        assert not to_journal(file, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino + 1}"})
        assert not to_journal(file, {})
    writer = EventWriter(PROGRAM, stream, prioritized=True)
    for name, priority in (("topic_slept", 7), ("ready", 6), ("stray_ignored", 4), ("sync_failed", 3)):
        record = logging.makeLogRecord({"levelno": EVENTS[name].level, "event": name, "fields": {"url": "u"}})
        writer.emit(record)
        assert lines(stream)[-1].startswith(f"<{priority}>")


def test_a_daemon_writes_priorities_to_the_journal_and_serves_after_its_end(
    tmp_path: Path, peers: Peers
) -> None:
    read, write = os.pipe()
    status = os.fstat(write)
    broker = BrokerProcess(
        tmp_path / "data",
        environment={"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"},
        popen={"pass_fds": (write,)},
        prefix=on_stderr(write),
    )
    try:
        broker.launch()
        os.close(write)
        with os.fdopen(read) as said:
            assert next(said).startswith("<6>quothd: serving")
            url = next(line for line in said if "ready " in line).split()[-1]
        fast = peers.fast(url)
        fast.publish("t", [b"x"])
        assert fast.fetch("t").values == [b"x"]
        assert broker.terminate() == 0
    finally:
        broker.close()


# -- the daemon -------------------------------------------------------------------------------------------


def test_every_line_of_a_daemon_with_json_is_json_without_content_of_records(
    tmp_path: Path, peers: Peers
) -> None:
    """Neither of stored records nor of refused ones, at any level. So is the line of a failed start."""
    secret = "5ec7e7"
    broker = BrokerProcess(tmp_path / "data", log_format="json", log_level="debug", worker_timeout=0.05)
    second = BrokerProcess(tmp_path / "data", log_format="json")
    try:
        broker.launch()
        url = json.loads(broker.wait_for('"event": "ready"'))["url"]
        fast = peers.fast(url)
        fast.call(Publish(), "t", batch.encode([secret.encode()], keys=[secret.encode()]))
        peers.simple(url).publish("t", secret.encode())
        refused = [
            fast.send_publish("no/topic", [secret.encode()]),
            fast.send_publish("t", [secret.encode()], "maybe"),
            fast.send(Publish(), "t", secret.encode()),
        ]
        assert all(map(code_of, fast.answers_to(refused)))
        hibernate(fast)
        second.launch()
        assert second.wait() == 3
        assert broker.terminate() == 0
    finally:
        broker.close()
        second.close()
    assert secret not in broker.stderr
    events = [json.loads(line) for line in broker.stderr.splitlines()[:-1]]
    names = [event["event"] for event in events]
    assert names[:4] == ["serving", "listening", "promise", "ready"]
    assert names[-2:] == ["stopping", "stopped"]
    assert {"topic_made", "topic_slept"} <= set(names)
    event = json.loads(second.stderr.splitlines()[0])
    assert event["event"] == "refused"
    assert "in use by process" in event["problem"]


def test_a_daemon_without_stderr_writes_into_none_of_its_files(tmp_path: Path, peers: Peers) -> None:
    """The next file that it opens would get the number of stderr."""
    port = free_port()
    quothd = (sys.executable, "-c", "from quothd.main import main; main()")
    process = subprocess.Popen(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *quothd, "--dir", str(tmp_path), "--port", str(port)]
    )
    try:
        peers.fast(f"tcp://127.0.0.1:{port}").publish("t", [b"x"])
        if sys.platform == "linux":
            assert os.readlink(f"/proc/{process.pid}/fd/2") == os.devnull
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()


# -- a broker in a program ----------------------------------------------------------------------------------


def test_an_embedded_broker_does_not_configure_logging(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, peers: Peers
) -> None:
    """The broker logs to "quothd", with the event and its fields."""
    root = logging.getLogger()
    before = list(root.handlers), root.level, list(logging.getLogger(LOGGER).handlers)
    with caplog.at_level("DEBUG", LOGGER), Broker(tmp_path, host="127.0.0.1", log_format="json") as broker:
        peers.fast(broker).publish("t", [b"x"])
        after = list(root.handlers), root.level, list(logging.getLogger(LOGGER).handlers)
    assert after == before
    (made,) = (record for record in caplog.records if getattr(record, "event", "") == "topic_made")
    assert made.name == LOGGER
    assert made.fields == {"topic": "t"}  # type: ignore[attr-defined]
    assert made.getMessage() == line_of("topic_made", {"topic": "t"}) == "event=topic_made topic=t"
