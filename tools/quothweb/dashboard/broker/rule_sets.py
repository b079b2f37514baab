"""The rule sets of the broker, from the topics in which it keeps them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from quoth.monitoring.alarms import RULES_TOPIC, lag_seconds
from quoth.rules.rule_change import REMOVE, RuleChange, change_of
from quoth.rules.rule_state import STATS_TOPIC, rule_set_of, state_of
from quothweb.brokers import BrokerClient
from quothweb.dashboard import figures
from quothweb.dashboard.markup import banner, link, section, tag
from quothweb.dashboard.records.commands import command, copy_buttons, program
from quothweb.dashboard.records.record_text import printable, view_of
from quothweb.dashboard.view import PageView
from quothweb.dashboard.widgets.data_table import DataRow, DataTable, TableColumn
from quothwire.errors import NotFound, QuothError

CHANGES_MAX = 10_000
"""Changes of rule sets that a page reads."""
COLUMNS = (
    TableColumn("name", "Rule set"),
    TableColumn("version", "Version", numeric=True),
    TableColumn("since", "Since (UTC)"),
    TableColumn("author", "Author"),
    TableColumn("topics", "Groups", numeric=True),
    TableColumn("records", "Records behind", numeric=True),
    TableColumn("lag", "Lag", numeric=True),
    TableColumn("dead", "Dead letters", numeric=True),
    TableColumn("problem", "Problem", kind="text"),
)


@dataclass(slots=True)
class RuleSetSummary:
    """One rule set that is not removed. groups: their number. state: as its process has saved it."""

    change: RuleChange
    version: int
    state: dict[str, Any] = field(default_factory=dict)
    groups: int = 0
    records: int = 0
    lag: float = 0.0
    dead: int = 0

    @property
    def problem(self) -> str:
        """The reason for which it does not go on, "" if it does."""
        workers = (str(worker.get("problem", "")) for worker in self.state.get("workers", ()))
        return str(self.state.get("problem") or next(filter(None, workers), ""))


async def rule_sets(view: PageView) -> None:
    """Build the page."""
    tag("h1", "Rules")
    tag(
        "p",
        "Rule sets route records from topics to others while the broker runs. Commands change them.",
        "muted",
    )
    running = view.observer.metrics.counters.get("rules_running") if view.observer.metrics else None
    if running == 0 and RULES_TOPIC in view.observer.topics:
        banner("The process that executes the rules does not run.", "critical")
    found = await view.ask(_summaries)
    _add_groups(view, found)
    table = DataTable("Rule sets", COLUMNS, "There is no rule set: `quoth rule add NAME FILE` adds one.")
    table.show(_row(name, one) for name, one in sorted(found.items()))
    url = view.config.url
    copy_buttons(command(url, "rule", "ls"), program(url, f"print(client.read({RULES_TOPIC!r}))"))
    for name, one in sorted(found.items()):
        _rule_set(view, name, one)


async def _summaries(client: BrokerClient) -> dict[str, RuleSetSummary]:
    """Read the last change and the last state of each rule set."""
    found: dict[str, RuleSetSummary] = {}
    versions: Counter[str] = Counter()
    try:
        changes = await client.read(RULES_TOPIC, limit=CHANGES_MAX, on_gap=lambda _: None)
    except NotFound:
        return found
    for message in changes:
        try:
            change = change_of(message.pointer, message.key, message.value, message.headers)
        except QuothError:
            continue  # a record of another program, which the rules skip, too
        versions[change.name] += 1
        found.pop(change.name, None)
        if change.action != REMOVE:
            found[change.name] = RuleSetSummary(change, versions[change.name])
    for name, state in (await _states(client)).items():
        if name in found:
            found[name].state = state
    return found


async def _states(client: BrokerClient) -> dict[str, dict[str, Any]]:
    states: dict[str, dict[str, Any]] = {}
    try:
        for message in await client.read(STATS_TOPIC, limit=CHANGES_MAX, on_gap=lambda _: None):
            state = state_of(message.value)
            if message.key is not None and state is not None:
                states[message.key.decode("utf-8", "replace")] = state
    except NotFound:
        pass
    return states


def _add_groups(view: PageView, found: dict[str, RuleSetSummary]) -> None:
    """Add the lag of the groups of the rule sets, as the broker has reported it last."""
    for row in view.observer.topics.values():
        for group in row.get("groups", ()):
            if one := found.get(rule_set_of(group["group"])):
                one.groups += 1
                one.records += group["lag"]
                one.lag = max(one.lag, lag_seconds(group, view.now))
                one.dead += group["dead"]


def _row(name: str, one: RuleSetSummary) -> DataRow:
    return DataRow(
        name,
        (
            printable(name),
            f"{one.version:,}",
            figures.second(one.change.pointer),
            printable(one.change.author),
            f"{one.groups:,}",
            figures.count(one.records),
            figures.span(one.lag),
            figures.count(one.dead),
            {"text": printable(one.problem) or "none", "tone": "critical" if one.problem else "muted"},
        ),
    )


def _rule_set(view: PageView, name: str, one: RuleSetSummary) -> None:
    with section(printable(name)):
        totals = dict(one.state.get("counts", {}).get("totals", {}))
        records = totals.pop("records", 0)
        counts = ", ".join(f"{count:,} {printable(str(fate))}" for fate, count in totals.items() if count)
        tag("p", f"{records:,} records: {counts}." if records else "No record was routed yet.", "muted")
        places = sorted(
            (topic, group["group"])
            for topic, row in view.observer.topics.items()
            for group in row.get("groups", ())
            if rule_set_of(group["group"]) == name
        )
        for topic, group in places[:20]:
            with tag("p"):
                link(f"Group {printable(group)} of {printable(topic)}", view.topic_url(topic, "group", group))
        if view.config.payloads:
            with tag("details"):
                tag("summary", "Rule file")
                tag("pre", view_of("text", one.change.text.encode()).text, tabindex=0)
