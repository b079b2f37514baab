"""`quoth forward`: carries a log, slabs, or a topic of another broker to a broker, each record once."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import BadParameter, Context

from quoth.core.options import DEFAULT_TIMEOUT_S
from quothcli.cli import options
from quothcli.cli.command import argument, command, group, option
from quothcli.cli.contexts import folder_of_user
from quothcli.cli.exit_status import CommandStatus, say, status_of, terminable
from quothcli.cli.options import WithBroker
from quothcli.cli.quantities import size_option
from quothcli.cli.session import BrokerAddress, ChosenKey
from quothcli.commands.records.forwarding import (
    ForwardState,
    ForwardWatch,
    SlabSource,
    log_source,
    wait_for_kind,
)
from quothcli.printing.progress import progress
from quothcli.printing.text import printable
from quothwire.errors import AuthError, QuothError, error
from quothwire.text.paths import given_path

if TYPE_CHECKING:
    from quoth import Client
    from quoth.forward.addressed_forwarder import AddressedForwarder
    from quoth.forward.forwarder import Forwarder
    from quoth.forward.reporting_source import ReportingSource
    from quoth.forward.source import ForwarderSource


_SourceArgument = Annotated[
    str, argument("SOURCE", "The directory of an embedded log or of queuefka's slabs, or a broker's URL.")
]
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
        "The file for the progress (default: in the directory of a log, where it also keeps others from "
        "trimming what is not forwarded yet, or below XDG_STATE_HOME).",
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
    "quoth forward /var/spool/queuefka/readings tcp://broker:5555 --topic readings",
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
    done when the broker has synced it. What cannot be read at the source is reported, and makes the exit
    status 1.
    """
    from quoth.filelock import FileLock
    from quoth.forward.forwarder import Forwarder
    from quoth.forward.source import ForwardingProgress

    there = replace(session, url=target or session.url).broker
    here = _at_source(source, source_key)
    url, timeout = there.url, session.timeout or DEFAULT_TIMEOUT_S
    with ExitStack() as stack:
        stack.enter_context(terminable())
        client = stack.enter_context(there.client(timeout))
        origins, name, default = _source(here, url, topic, origin, timeout, stack, once=once)
        if origins is None:
            return _forward_nothing(session, Path(source), client, name)
        path, trimmed = state or default, Path(source) if trim else None
        _check_files(source, origins, path, trimmed)
        path.parent.mkdir(parents=True, exist_ok=True)
        stack.callback(FileLock(path).release)
        watch = ForwardWatch(stack.enter_context(progress(f"forwarding to {printable(name)}")), name)
        about = (source, url, name)
        forwarder: Forwarder | AddressedForwarder
        if isinstance(origins, SlabSource):
            is_removable, forwarder = False, _of_slabs(origins, client, path, about, watch, rate, cursor)
        else:
            mark = ForwardState(path, ForwardingProgress, *about, trimmed=trimmed)
            if cursor is not None:
                origins = mark.reporting = _reporting(origins, here, cursor, watch, timeout, stack)
            forwarder = Forwarder(
                origins, client, name, progress=mark.progress, save=mark.save, events=watch, rate=rate or 0
            )
            mark.save(forwarder.progress)  # others may not trim what is not forwarded
            is_removable = mark.is_new
        try:
            forwarder.run(until_end=once)
        except BaseException as problem:
            say(f"quoth: {watch.text()}")
            mistyped = isinstance(problem, QuothError) and status_of(problem) is CommandStatus.USAGE
            if mistyped and is_removable and not watch.records:
                path.unlink(missing_ok=True)  # a mistyped command must not keep others from trimming
            if isinstance(problem, AuthError):
                raise _with_keys(problem, here, there) from problem
            raise
    unfinished = origins.unfinished if isinstance(origins, SlabSource) else 0
    if unfinished:
        say(f"quoth: {unfinished} bytes at the end of the last slab are no whole record yet")
    session.printer.answer(watch.text(), {"topic": name, "url": url, **watch.counts}, watch.records)
    return CommandStatus.FAILED if watch.lost_records or watch.gaps else CommandStatus.DONE


def _forward_nothing(session: WithBroker, directory: Path, client: Client, topic: str) -> int:
    """Wait for the broker as with records, so that the outcome does not depend on them. Saves no state."""
    from quoth.forward.forwarder import Forwarder

    source, watch = log_source(directory), ForwardWatch(lambda *_: None, topic)
    Forwarder(source, client, topic, progress=None, save=lambda _: None, events=watch).run(until_end=True)
    about = {"topic": topic, "url": client.url, **watch.counts}
    session.printer.answer(watch.text(), about, watch.records)
    return CommandStatus.DONE


def _check_files(
    source: str, origins: ForwarderSource | SlabSource, state: Path, trimmed: Path | None
) -> None:
    """Check that a log can be trimmed, and that the state may lie where it does."""
    from quothlog.file_format import MARK_SUFFIX
    from quothlog.reading import forwarding_progress

    is_of_slabs = isinstance(origins, SlabSource)
    if trimmed is not None and ("://" in source or is_of_slabs):
        raise BadParameter("only an embedded log can be trimmed", param_hint="--trim")
    if trimmed is not None and not forwarding_progress.is_mark_of(state, trimmed):
        text = f"to trim, it has to lie in {trimmed}, as NAME{MARK_SUFFIX}"
        raise BadParameter(text, param_hint="--state")
    if is_of_slabs and state.parent.resolve() == Path(source).resolve():
        raise BadParameter("queuefka writes to the last file of that directory", param_hint="--state")


def _of_slabs(
    source: SlabSource,
    client: Client,
    path: Path,
    about: tuple[str, str, str],
    watch: ForwardWatch,
    rate: int | None,
    cursor: str | None,
) -> AddressedForwarder:
    """Return the forwarder of a directory of slabs.

    Its state is never removed: a batch may have arrived although its answer was lost, and nothing but the
    producer id in the state shows that.
    """
    from quoth.forward.addressed import AddressProgress
    from quoth.forward.addressed_forwarder import AddressedForwarder

    if cursor is not None:
        raise BadParameter("slabs have no groups", param_hint="--group")
    state = ForwardState(path, AddressProgress, *about, slabs=source.directory)
    return AddressedForwarder(
        source, client, about[2], progress=state.progress, save=state.save, events=watch, rate=rate or 0
    )


def _source(
    source: BrokerAddress,
    url: str,
    topic: str | None,
    origin: str | None,
    timeout: float,
    stack: ExitStack,
    *,
    once: bool,
) -> tuple[ForwarderSource | SlabSource | None, str, Path]:
    """Return the source, the topic that gets the records, and the default file of the progress.

    source: its url may also be a directory. One that holds neither a log nor slabs gives no source with once,
    and is waited for without it.
    """
    from quoth.forward.source import StoredSource
    from quothlog.datadir.discovery import data_directory
    from quothwire.topic import check_topic

    if "://" in source.url:
        name = topic or origin
        if name is None:
            raise BadParameter("say which topic of that broker", param_hint="--topic")
        client = stack.enter_context(source.client(timeout))
        return StoredSource(client, origin or name), name, _user_state(source.url, origin, url, name)
    if origin is not None:
        raise BadParameter("an embedded log has no topics", param_hint="--from")
    if source.key is not None:
        raise BadParameter("an embedded log needs no key", param_hint="--source-key")
    directory = given_path(source.url, "SOURCE")
    if data_directory(directory) is not None:
        raise error(
            "bad_request", f"{directory} belongs to a broker", "forward its topics by the URL of that broker"
        )
    name = check_topic(topic or directory.resolve().name)
    kind = wait_for_kind(directory, 0.0 if once else None)
    if kind == "log":
        return log_source(directory), name, directory / _mark_name(url, name)
    path = _user_state(str(directory.resolve()), url, name)
    return SlabSource(directory) if kind == "slabs" else None, name, path


def _reporting(
    origin: ForwarderSource,
    source: BrokerAddress,
    cursor: str,
    watch: ForwardWatch,
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


def _user_state(*about: str | None) -> Path:
    """Return the file for the progress of a forwarding whose source keeps none."""
    return folder_of_user("XDG_STATE_HOME", ".local/state") / "quoth" / _mark_name(*about)


def _mark_name(*about: str | None) -> str:
    """Return a file name for the progress of a forwarding."""
    from xxhash import xxh3_64_hexdigest

    from quothlog.file_format import MARK_SUFFIX

    return xxh3_64_hexdigest("\0".join(one or "" for one in about).encode()) + MARK_SUFFIX
