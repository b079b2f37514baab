"""The states of rule sets, for `quoth rule ls` and `quoth rule stats`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quothcli.printing.output import Format, Printer
from quothcli.printing.table import print_table
from quothcli.printing.text import printable, time_or_dash
from quothrules.history.rule_history import RuleHistory
from quothrules.service.rule_report import saved_states
from quothwire.errors import NotFound

if TYPE_CHECKING:
    from quoth import Client
    from quothwire.protocol.group_messages import GroupInfo

_TOTALS = ("records", "written", "unmatched", "failed", "dead", "refused", "repeated", "killed", "ended")


@dataclass(slots=True)
class RuleSetState:
    """A rule set, its groups by topic, and what the process of the rules has saved of it."""

    history: RuleHistory
    saved: dict[str, Any]
    groups: list[tuple[str, GroupInfo]] = field(default_factory=list)

    @property
    def lag(self) -> int:
        """The records that it has not finished."""
        return sum(info.lag for _, info in self.groups)

    @property
    def dead(self) -> int:
        """The dead letters of its groups."""
        return sum(info.dead for _, info in self.groups)

    @property
    def problem(self) -> str:
        """The reason for which it does not go on, empty if it does."""
        if self.history.problem:
            return self.history.problem
        workers = (worker["problem"] for worker in self.saved.get("workers", ()))
        found = next(filter(None, workers), "") or next((i.problem for _, i in self.groups if i.problem), "")
        return str(self.saved.get("problem") or found)


def states_of(client: Client, histories: Mapping[str, RuleHistory]) -> list[RuleSetState]:
    """Return the states of rule sets that are not removed."""
    saved = saved_states(client)
    found = [
        RuleSetState(history, saved.get(name, {}))
        for name, history in sorted(histories.items())
        if history.current is not None or history.problem
    ]
    for topic in client.topics() if found else ():
        for state in found:
            for place in state.history.places(topic):
                with suppress(NotFound):  # its worker has not begun
                    state.groups.append((topic, client.group(topic, place.name, create=False).info()))
    return found


def print_states(printer: Printer, states: list[RuleSetState]) -> None:
    """Print a line for each rule set."""
    if printer.form is not Format.TEXT:
        for state in states:
            printer.answer(state.history.name, _object(state), state.history.name)
        return
    headings = ("NAME", "VERSION", "SINCE", "READS", "RULES", "LAG", "DEAD", "PROBLEM")
    print_table(printer, headings, [_row(state) for state in states], {"VERSION", "RULES", "LAG", "DEAD"})
    printer.flush()


def print_stats(printer: Printer, states: list[RuleSetState]) -> None:
    """Print the counts of each rule set."""
    if printer.form is not Format.TEXT:
        for state in states:
            printer.answer(state.history.name, _object(state), state.history.name)
        return
    for number, state in enumerate(states):
        counts = _counts(state)
        printer.line(("\n" if number else "") + printable(state.history.name))
        rows = [(printable(rule), fate, f"{count:,}") for rule, fate, count in _fates(state)]
        print_table(
            printer,
            ("  RULE", "FATE", "RECORDS"),
            [("  " + rule, *rest) for rule, *rest in rows],
            {"RECORDS"},
        )
        totals = [f"{counts['totals'][name]:,} {name}" for name in _TOTALS if counts["totals"].get(name)]
        printer.line("  " + (", ".join(totals) or "nothing yet"))
        for topic, info in state.groups:
            printer.line(
                f"  {printable(topic)}: lag {info.lag:,}, {info.dead:,} dead ({printable(info.group)})"
            )
        if state.problem:
            printer.line(f"  problem: {printable(state.problem)}")
    printer.flush()


def _row(state: RuleSetState) -> tuple[str, ...]:
    current = state.history.current
    rules = current.rules if current is not None else None
    return (
        printable(state.history.name),
        str(current.number) if current is not None else "-",
        time_or_dash(current.change.pointer)[:19] if current is not None else "-",
        printable(str(rules.topics)) if rules is not None else "-",
        f"{len(rules.rules):,}" if rules is not None else "-",
        f"{state.lag:,}",
        f"{state.dead:,}",
        printable(state.problem),
    )


def _counts(state: RuleSetState) -> dict[str, Any]:
    return state.saved.get("counts") or {"totals": {}, "rules": {}}


def _fates(state: RuleSetState) -> Iterator[tuple[str, str, int]]:
    for rule, fates in _counts(state)["rules"].items():
        for fate, count in fates.items():
            yield rule, fate, count


def _object(state: RuleSetState) -> dict[str, Any]:
    current = state.history.current
    rules = current.rules if current is not None else None
    return {
        "name": state.history.name,
        "version": current.number if current is not None else None,
        "pointer": current.change.pointer if current is not None else None,
        "reads": str(rules.topics) if rules is not None else None,
        "rules": [rule.name for rule in rules.rules] if rules is not None else [],
        "lag": state.lag,
        "dead": state.dead,
        "problem": state.problem,
        "groups": [
            {"topic": topic, "group": info.group, "lag": info.lag, "dead": info.dead, "after": info.after}
            for topic, info in state.groups
        ],
        "totals": _counts(state)["totals"],
        "counts": [{"rule": rule, "fate": fate, "records": count} for rule, fate, count in _fates(state)],
    }
