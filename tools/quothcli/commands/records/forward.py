"""`quoth forward`: forwards an embedded log, or a topic of another broker, to a broker, each record once."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import BadParameter, Context

from quoth.core.options import DEFAULT_TIMEOUT_S
from quothcli.cli import options
from quothcli.cli.command import argument, command, group, option
from quothcli.cli.contexts import folder_of_user
from quothcli.cli.exit_status import CommandStatus, say, status_of, terminable
from quothcli.cli.options import WithBroker
from quothcli.cli.quantities import size_option
from quothcli.cli.session import BrokerAddress, ChosenKey
from quothcli.printing.progress import Advance, progress
from quothcli.printing.text import bytes_text, printable, records_text
from quothwire.errors import AuthError, QuothError, error
from quothwire.text.paths import given_path

if TYPE_CHECKING:
    from quoth.forward.reporting_source import ReportingSource
    from quoth.forward.source import ForwarderSource, ForwardingProgress, LostRecords
    from quothlog.reading.tailer import Tailer


_SourceArgument = Annotated[str, argument("SOURCE", "The directory of an embedded log, or a broker's URL.")]
_Target = Annotated[
    str | None, argument("[URL]", "The broker that gets the records (default: as for every command).")
]
_Topic = Annotated[str | None, option("--topic TOPIC", "The topic there (default: the directory's name).")]
_Origin = Annotated[str | None, option("--from TOPIC", "The topic of a source broker, if named otherwise.")]
_Once = Annotated[bool, option("--once", "End when everything that is there has been forwarded.")]
_Trim = Annotated[bool, option("--trim", "Trim the embedded log up to what is synced at the broker.")]
_Rate = Annotated[int | None, size_option("--rate", "Send at most so much a second: 10MB, 512KiB.")]
_State = Annotated[
    Path | None,
    option(
        "--state FILE",
        "The file for the progress (default: in the directory, where it also keeps others from trimming "
        "what is not forwarded yet, or below XDG_STATE_HOME).",
    ),
]


def _at_source(source: str, key_file: Path | None) -> BrokerAddress:
    """Return the address of the source; its url may also be the directory of an embedded log."""
    key = None if key_file is None else ChosenKey(key_file, "--source-key")
    return BrokerAddress(source, None, "SOURCE", key)


def _groups_at_source(context: Context, incomplete: str) -> list[str]:
    """List the groups of the source's topic that begin like this, for completion; none without an answer."""
    # In front of the cursor is an option without its value: no argument is parsed yet.
    source = context.args[0] if context.args else context.params.get("source")
    topic = context.params.get("origin") or context.params.get("topic")
    address = _at_source(source or "", context.params.get("source_key"))
    with suppress(Exception), address.client(options.COMPLETION_S) as client:
        return [one.group for one in client.groups(topic or "") if one.group.startswith(incomplete)]
    return []


_SourceKey = Annotated[
    Path | None,
    options.key_option(
        "--source-key FILE",
        "The key file for a source broker with keys (default: none; --key-file is for the target).",
        "--source-key",
    ),
]
_Group = Annotated[
    str | None,
    option(
        "--group NAME",
        "Show the progress at a source broker, as this named cursor of its topic; it is made if need be.",
        autocompletion=_groups_at_source,
    ),
]

app = group()


@command(
    app,
    "forward",
    "quoth forward device/readings --once",
    "quoth forward device/readings tcp://broker:5555 --topic readings --trim --rate 50000",
    "quoth forward tcp://127.0.0.1:5555 tcp://broker:5555 --topic orders --once",
    "quoth forward tcp://127.0.0.1:5555 tcp://broker:5555 --topic orders --group to-broker",
    "quoth forward device/readings tcp://broker:5555 --key device.key",
)
def forward(
    session: WithBroker,
    source: _SourceArgument,
    target: _Target = None,
    topic: _Topic = None,
    origin: _Origin = None,
    once: _Once = False,
    trim: _Trim = False,
    rate: _Rate = None,
    state: _State = None,
    cursor: _Group = None,
    source_key: _SourceKey = None,
) -> int:
    """Carry a log to a topic of a broker, each record exactly once.

    It runs until it is stopped, unless --once is given: it waits for new records, and while the network or
    the broker is away. Killed at any moment and started again, it goes on where it was. A record is
    done when the broker has synced it.
    """
    from quoth.filelock import FileLock
    from quoth.forward.forwarder import Forwarder
    from quothlog.file_format import MARK_SUFFIX
    from quothlog.reading import forwarding_progress

    there = replace(session, url=target or session.url).broker
    here = _at_source(source, source_key)
    url, timeout = there.url, session.timeout or DEFAULT_TIMEOUT_S
    with ExitStack() as stack:
        stack.enter_context(terminable())
        origins, name, default = _source(here, url, topic, origin, timeout, stack)
        if trim and "://" in source:
            raise BadParameter("only an embedded log can be trimmed", param_hint="--trim")
        path, trimmed = state or default, Path(source) if trim else None
        if trimmed is not None and not forwarding_progress.is_mark_of(path, trimmed):
            text = f"to trim, it has to lie in {trimmed}, as NAME{MARK_SUFFIX}"
            raise BadParameter(text, param_hint="--state")
        path.parent.mkdir(parents=True, exist_ok=True)
        stack.callback(FileLock(path).release)
        mark = _Mark(path, source, url, name, trimmed)
        client = stack.enter_context(there.client(timeout))
        watch = _Watch(stack.enter_context(progress(f"forwarding to {printable(name)}")), name)
        if cursor is not None:
            origins = mark.reporting = _reporting(origins, here, cursor, watch, timeout, stack)
        forwarder = Forwarder(
            origins, client, name, progress=mark.progress, save=mark.save, events=watch, rate=rate or 0
        )
        mark.save(forwarder.progress)  # others may not trim what is not forwarded
        try:
            forwarder.run(until_end=once)
        except BaseException as problem:
            say(f"quoth: {watch.text()}")
            mistyped = isinstance(problem, QuothError) and status_of(problem) is CommandStatus.USAGE
            if mistyped and mark.is_new and not watch.records:
                path.unlink(missing_ok=True)  # a mistyped command must not keep others from trimming
            if isinstance(problem, AuthError):
                raise _with_keys(problem, here, there) from problem
            raise
    counts = {"records": watch.records, "bytes": watch.bytes, "lost": watch.lost_records}
    session.printer.answer(watch.text(), {"topic": name, "url": url, **counts}, watch.records)
    return CommandStatus.FAILED if watch.lost_records else CommandStatus.DONE


def log_source(directory: Path) -> Tailer:
    """Read the synced batches of an embedded log, also while its program writes it."""
    from quothlog.reading.tailer import Tailer

    return Tailer(directory, durable=True, on_missing=lambda _: None)  # ordinals show gaps


class _Mark:
    """The file with the progress of a forwarding. trimmed: the log that it lets trim."""

    def __init__(self, path: Path, source: str, url: str, topic: str, trimmed: Path | None) -> None:
        from quoth.forward.source import ForwardingProgress
        from quothlog.reading import forwarding_progress

        self.progress: ForwardingProgress | None = None
        self._path = path
        self._about = {"from": source, "url": url, "topic": topic, "trim": trimmed is not None}
        self._trimmed = trimmed
        self.reporting: ReportingSource | None = None
        """Gets to know what is finished."""
        found = forwarding_progress.read_mark(path)
        self.is_new = found is None
        if found is None:
            return
        if (found.get("url"), found.get("topic")) != (url, topic):
            raise error("bad_request", f"{path} belongs to {found.get('topic')} at {found.get('url')}")
        values: dict[str, Any] = {name: found.get(name) for name in ForwardingProgress._fields}
        if not all(isinstance(value, int) for value in values.values()):
            text = f"{path} does not say how far the forwarding is"
            raise error("damaged", text, "remove it to look again")
        self.progress = ForwardingProgress(**values)

    def save(self, progress: ForwardingProgress) -> None:
        """Write the file, trim what it releases, and report it to the source."""
        from quothlog.reading import forwarding_progress

        forwarding_progress.write_mark(self._path, {**self._about, **progress._asdict()})
        if self._trimmed is not None:
            forwarding_progress.trim_unowned(self._trimmed)
        if self.reporting is not None:
            self.reporting.finish(progress.pointer)


class _Watch:
    """Counts records, and reports on stderr what happens, the same thing once."""

    def __init__(self, advance: Advance, topic: str) -> None:
        self.records = self.bytes = self.lost_records = 0
        self._advance = advance
        self._topic = topic
        self._reported = ""

    def text(self) -> str:
        """Return the result for people."""
        amounts = f"{records_text(self.records)}, {bytes_text(self.bytes)}"
        return f"forwarded {amounts}, to {printable(self._topic)}"

    def forwarded(self, records: int, size: int) -> None:
        """See `Events`."""
        self.records += records
        self.bytes += size
        self._reported = ""
        self._advance(records, size)

    def waits(self, problem: QuothError, _seconds: float) -> None:
        """See `Events`."""
        if problem.code != self._reported:
            self._reported = problem.code
            say(f"quoth: {problem.code}: {problem.text}; nothing is lost, it goes on by itself")

    def lost(self, losses: LostRecords) -> None:
        """See `Events`."""
        self.lost_records += losses.records
        say(
            f"quoth: {records_text(losses.records)} behind pointer {losses.after} and before {losses.next} "
            "are gone at the source and were not forwarded"
        )

    def began_anew(self, text: str) -> None:
        """See `Events`."""
        say(f"quoth: {text}")


def _source(
    source: BrokerAddress, url: str, topic: str | None, origin: str | None, timeout: float, stack: ExitStack
) -> tuple[ForwarderSource, str, Path]:
    """Return the source, the topic that gets the records, and the default file of the progress.

    source: its url may also be the directory of an embedded log.
    """
    from quoth.forward.source import StoredSource
    from quothlog.datadir.discovery import data_directory
    from quothlog.recovery.snapshot import floors_in

    if "://" in source.url:
        name = topic or origin
        if name is None:
            raise BadParameter("say which topic of that broker", param_hint="--topic")
        client = stack.enter_context(source.client(timeout))
        state = folder_of_user("XDG_STATE_HOME", ".local/state")
        path = state / "quoth" / _mark_name(source.url, origin, url, name)
        return StoredSource(client, origin or name), name, path
    if origin is not None:
        raise BadParameter("an embedded log has no topics", param_hint="--from")
    if source.key is not None:
        raise BadParameter("an embedded log needs no key", param_hint="--source-key")
    directory = given_path(source.url, "SOURCE")
    if data_directory(directory) is not None:
        raise error(
            "bad_request", f"{directory} belongs to a broker", "forward its topics by the URL of that broker"
        )
    if not floors_in(directory):
        say(f"quoth: there is no log in {directory} yet")
    name = topic or directory.resolve().name
    return log_source(directory), name, directory / _mark_name(url, name)


def _reporting(
    origin: ForwarderSource,
    source: BrokerAddress,
    cursor: str,
    watch: _Watch,
    timeout: float,
    stack: ExitStack,
) -> ReportingSource:
    """Return a source whose broker shows the progress. source: that broker. cursor: the name there."""
    from quoth.forward.reporting_source import ReportingSource
    from quoth.forward.source import StoredSource
    from quoth.reported_cursor import REPORT_S, ReportedCursor

    if not isinstance(origin, StoredSource):
        raise BadParameter("an embedded log has no groups", param_hint="--group")
    client = stack.enter_context(source.client(min(timeout, REPORT_S)))
    return ReportingSource(origin, ReportedCursor(client, origin.topic, cursor), watch.waits)


def _with_keys(problem: AuthError, source: BrokerAddress, target: BrokerAddress) -> AuthError:
    """Return the error with the keys that were used, because it may come from each of two brokers."""
    text = target.key_text
    if "://" in source.url:
        of_source = "no --source-key was given" if source.key is None else source.key_text
        text = f"source: {of_source}; target: {text}"
    return AuthError(problem.code, f"{problem.text} ({text})", problem.hint)


def _mark_name(*about: str | None) -> str:
    """Return a file name for the progress of a forwarding."""
    from xxhash import xxh3_64_hexdigest

    from quothlog.file_format import MARK_SUFFIX

    return xxh3_64_hexdigest("\0".join(one or "" for one in about).encode()) + MARK_SUFFIX
