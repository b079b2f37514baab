"""`quoth rule`: tries, adds, lists, shows and removes routing rules."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import BadParameter, Context

from quothcli.cli.command import argument, command, group, option
from quothcli.cli.exit_status import CommandStatus, say
from quothcli.cli.options import Between, Limit, WithBroker, Yes, session_of_line, topic_names
from quothcli.cli.questions import confirm
from quothcli.printing.output import Format
from quothcli.printing.text import counted, printable, time_or_dash
from quothwire.errors import Conflict, NotFound, error
from quothwire.text.paths import given_path
from quothwire.text.suggestion import nearest

if TYPE_CHECKING:
    from quoth import Client
    from quothrules.history.rule_history import RuleHistory, RuleVersion


def rule_names(context: Context, incomplete: str) -> list[str]:
    """List the rule sets that begin like this, for completion; none if the broker does not answer at once."""
    with suppress(Exception), session_of_line(context).connect() as client:
        return [name for name in _histories(client) if name.startswith(incomplete)]
    return []


_File = Annotated[Path, argument("FILE", "The rule file, in TOML; `quoth help rules` describes it.")]
_Name = Annotated[str, argument("NAME", "The name of the rule set.", autocompletion=rule_names)]
_SetName = Annotated[
    str | None,
    option("--name NAME", "The name of the rule set, unless the file has one (default: that of FILE)."),
]

app = group("Routing rules: try, add, list, show and remove them.")


@command(
    app,
    "test",
    "quoth rule test orders.toml --topic orders.eu --since -1d",
    "quoth rule test orders.toml --since -1h --format json | jq .rules",
)
def dry_run(
    session: WithBroker,
    file: _File,
    between: Between,
    topics: Annotated[
        list[str] | None,
        option(
            "--topic TOPIC",
            "Only records of this topic; may be repeated (default: all that the rules read).",
            autocompletion=topic_names,
        ),
    ] = None,
    limit: Limit = None,
    name: _SetName = None,
) -> int:
    """Show what rules would have done with the past; writes nothing.

    It reads the records of the topics, evaluates the rules here, and prints how many each rule took, what
    every topic would get, and examples. Functions that rules call have to be installed here. The ages of the
    records are those of now. The exit status is 1 if a rule fails on a record.
    """
    from quothcli.commands.rules.dry_run_page import dry_run_of, print_dry_run

    rules = _parsed(file, name)
    with session.connect() as client:
        found = dry_run_of(client, rules, topics, between, limit)
    print_dry_run(session.printer, rules, found)
    failed = any(fate == "failed" for _, fate in found.fates)
    return CommandStatus.FAILED if failed else CommandStatus.DONE


@command(
    app,
    "add",
    "quoth rule add orders.toml",
    "quoth rule add orders.toml --from -7d",
    "quoth rule add orders.toml --from begin",
)
def add(
    session: WithBroker,
    file: _File,
    begin: Annotated[
        str | None,
        option(
            "--from WHERE",
            "Begin here, and follow: begin, end, or a time or pointer as for --since. Records from there on "
            "are routed, also those that were routed before.",
        ),
    ] = None,
    name: _SetName = None,
) -> None:
    """Add a rule set, or a new version of one.

    A new rule set begins with the next record; another version of one goes on where it is. It has effect
    within a second. The broker keeps all versions. A file that is in effect already is not added again.
    """
    from quoth.groups.options import default_author, place
    from quoth.rules.rule_change import RuleChange

    rules = _parsed(file, name)
    change = RuleChange(
        rules.name, rules.text, begin=None if begin is None else place(begin), author=default_author()
    )
    with session.connect() as client:
        history = _histories(client).get(rules.name)
        current = history.current if history is not None else None
        if current is not None and current.change.text == rules.text and begin is None:
            say(f"quoth: version {current.number} of {rules.name} is this file: it is not added again")
        else:
            _write(client, change)
            history = _histories(client)[rules.name]
            current = history.versions[-1]
    session.printer.answer(
        f"{printable(rules.name)} version {current.number}, {counted(len(rules.rules), 'rule')}",
        _object(rules.name, current),
        current.number,
    )


@command(app, "ls", "quoth rule ls", "quoth rule ls --format json | jq .problem")
def ls(session: WithBroker) -> None:
    """List the rule sets: version, topics, lag, dead letters.

    LAG is how many records the rules have not finished, DEAD how many they could not route: those are in the
    dead-letter topics, TOPIC.rules.NAME.dead. PROBLEM says why a rule set does not go on.
    """
    from quothcli.commands.rules.rule_states import print_states, states_of

    with session.connect() as client:
        print_states(session.printer, states_of(client, _histories(client)))


@command(
    app,
    "show",
    "quoth rule show orders > orders.toml",
    "quoth rule show orders --versions",
    "quoth rule show orders --version 3",
)
def show(
    session: WithBroker,
    name: _Name,
    version: Annotated[
        int | None, option("--version N", "That version, instead of the one in effect.", min=1)
    ] = None,
    versions: Annotated[bool, option("--versions", "List all versions.")] = False,
) -> None:
    """Print the file of a rule set, as it was added.

    With --versions a line for each version: its number, when and by whom it was added, and where it began.
    """
    printer = session.printer
    with session.connect() as client:
        history = _history(client, name)
    if versions:
        if version is not None:
            raise BadParameter("it lists all of them: give --version or --versions", param_hint="--versions")
        for one in history.versions:
            printer.answer(_version_text(one), _object(name, one), one.number)
        return
    found = _version(history, version)
    if printer.form is Format.JSON:
        printer.object(_object(name, found))
    else:
        printer.line(found.change.text.removesuffix("\n"))
    printer.flush()


@command(app, "rm", "quoth rule rm orders", "quoth rule rm orders --yes")
def remove(session: WithBroker, name: _Name, yes: Yes = False) -> None:
    """Remove a rule set: its groups go, what it has written stays.

    Its versions stay, too: `quoth rule show --versions` lists them. It asks first; without a terminal it
    needs --yes.
    """
    from quoth.groups.options import default_author
    from quoth.rules.rule_change import REMOVE, RuleChange

    with session.connect() as client:
        current = _history(client, name).current
        if current is None:
            raise error("unknown_record", f"the rule set {name!r} is removed already", _LISTED)
        confirm(f"Remove the rule set {printable(name)!r}, version {current.number}?", yes=yes)
        _write(client, RuleChange(name, "", REMOVE, author=default_author()))
        last = _histories(client)[name].versions[-1]
    session.printer.answer(f"removed {printable(name)}", _object(name, last), name)


@command(app, "stats", "quoth rule stats", "quoth rule stats orders --format json")
def stats(
    session: WithBroker,
    name: Annotated[
        str | None,
        argument("NAME", "The name of the rule set; without it, all.", autocompletion=rule_names),
    ] = None,
) -> None:
    """Show what rule sets have done: counts of each rule and fate.

    FATE is routed, dropped, duplicate, or passed on with other headers. The counts are those since the rule
    set was added, as the process of the rules has saved them, every few seconds; a crash loses the last ones.
    """
    from quothcli.commands.rules.rule_states import print_stats, states_of

    with session.connect() as client:
        histories = _histories(client)
        chosen = histories if name is None else {name: _history(client, name)}
        print_stats(session.printer, states_of(client, chosen))


# -- rule sets ----------------------------------------------------------------------------------------------

_LISTED = "`quoth rule ls` lists the rule sets"


def _parsed(file: Path, name: str | None) -> Any:
    """Read and parse a rule file. Raises ``bad_setting`` with the line at fault."""
    from quothrules.file.rule_file import parse_rule_file

    path = given_path(file, "FILE")
    try:
        text = path.read_bytes().decode()
    except OSError as problem:
        raise error("bad_setting", f"{file}: {problem.strerror}", "is the path right?") from None
    except UnicodeDecodeError as problem:
        line = problem.object.count(b"\n", 0, problem.start) + 1
        raise error("bad_setting", f"{file}:{line}: a byte that is not UTF-8", "TOML is UTF-8") from None
    return parse_rule_file(text, str(file), name or path.stem)


def _histories(client: Client) -> dict[str, RuleHistory]:
    from quothrules.service.rules_service import histories_of

    return histories_of(client)


def _history(client: Client, name: str) -> RuleHistory:
    """Return the versions of a rule set. Raises ``unknown_record``."""
    histories = _histories(client)
    if name not in histories:
        near = nearest(name, histories)
        hint = f"did you mean {near!r}? {_LISTED}" if near else _LISTED
        raise error("unknown_record", f"there is no rule set {name!r}", hint)
    return histories[name]


def _version(history: RuleHistory, number: int | None) -> RuleVersion:
    """Return a version, by default that in effect, or the newest one. Raises ``unknown_record``."""
    newest = history.versions[-1]
    if number is None and history.current is None and not newest.problem:
        hint = "`quoth rule show NAME --versions` lists its versions"
        raise error("unknown_record", f"the rule set {history.name!r} was removed", hint)
    if number is None:
        return history.current or newest
    found = next((one for one in history.versions if one.number == number), None)
    if found is None:
        hint = f"the newest one is {newest.number}"
        raise error("unknown_record", f"{history.name} has no version {number}", hint)
    return found


def _write(client: Client, change: Any) -> None:
    """Publish a change, to a topic that is made if there is none."""
    from quothrules.matching.topic_patterns import RULES_TOPIC

    try:
        client.topic(RULES_TOPIC)
    except NotFound:
        with suppress(Conflict):  # another client has made it just now
            client.create_topic(RULES_TOPIC, durability="synced", max_age="infinity", max_bytes="infinity")
    client.publish(
        RULES_TOPIC,
        change.text.encode(),
        key=change.name.encode(),
        headers=change.headers,
        durability="synced",
    )


def _object(name: str, version: RuleVersion) -> dict[str, Any]:
    change = version.change
    return {
        "name": name,
        "version": version.number,
        "run": version.run,
        "action": change.action,
        "pointer": change.pointer,
        "time": time_or_dash(change.pointer),
        "begin": version.begin,
        "author": change.author,
        "problem": version.problem,
        "text": change.text,
    }


def _version_text(version: RuleVersion) -> str:
    change = version.change
    began = "" if change.begin is None else f", from {time_or_dash(version.begin)}"
    problem = f", no effect: {printable(version.problem)}" if version.problem else ""
    author = f" by {printable(change.author)}" if change.author else ""
    return f"{version.number}  {time_or_dash(change.pointer)}  {change.action}{author}{began}{problem}"
