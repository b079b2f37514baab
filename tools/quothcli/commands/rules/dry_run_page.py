"""The page of `quoth rule test`: what rules would have done, with counts and examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from typer import BadParameter

from quoth.timestamps import now
from quothcli.cli.options import BetweenPointers
from quothcli.printing.output import Format, Printer
from quothcli.printing.progress import progress
from quothcli.printing.table import print_table
from quothcli.printing.text import counted, printable, records_text, shown
from quothrules.dry_run import FAILED, DryRun, Example, dry_run
from quothrules.routing.route_worker import history_of
from quothwire.errors import error
from quothwire.pointer import POINTER_MAX, time_text
from quothwire.text.record_json import record_object

if TYPE_CHECKING:
    from quoth import Client, Message
    from quothrules.rule import RuleSet

_VALUE_CHARACTERS = 60
"""Of the value of an example."""


def dry_run_of(
    client: Client, rules: RuleSet, topics: Sequence[str] | None, between: BetweenPointers, limit: int | None
) -> DryRun:
    """Run rules over records of some topics, or of all that they read.

    Raises BadParameter for a topic that they do not read, ``unknown_topic`` if there is none at all.
    """
    for topic in topics or ():
        if not rules.topics.matches(topic):
            raise BadParameter(
                f"the rules do not read {topic!r}: they read {rules.topics}", param_hint="--topic"
            )
    names = list(topics or filter(rules.topics.matches, client.topics()))
    if not names:
        raise error("unknown_topic", f"no topic matches {rules.topics}")
    with progress("evaluating") as advance:
        records = (_records(client, name, between, limit, advance) for name in names)
        return dry_run(rules, records, now, history_of(client))


def _records(
    client: Client, topic: str, between: BetweenPointers, limit: int | None, advance: Any
) -> Iterator[Message]:
    """Yield the records of a range of a topic, at most so many."""

    def all_of_them() -> Iterator[Message]:
        for batch in client.batches(topic, after=between.after, until=min(between.until + 1, POINTER_MAX)):
            for message in batch:
                if between.after < message.pointer <= between.until:
                    advance(1, len(message.value))
                    yield message

    return islice(all_of_them(), limit)


def print_dry_run(printer: Printer, rules: RuleSet, found: DryRun) -> None:
    """Print the outcome of a dry run."""
    if printer.form is Format.JSON:
        printer.object(_object(found))
    elif printer.form is Format.RAW:
        printer.line(str(found.records))
    else:
        printer.line(
            f"{records_text(found.records)}, {counted(len(rules.rules), 'rule')}; nothing was written\n"
        )
        fates = [(printable(rule) or "-", fate, f"{count:,}") for rule, fate, count in _ordered(rules, found)]
        print_table(printer, ("RULE", "FATE", "RECORDS"), fates, {"RECORDS"})
        topics = [(printable(topic), f"{count:,}") for topic, count in found.topics.most_common()]
        if topics:
            printer.line("")
            print_table(printer, ("TOPIC", "RECORDS"), topics, {"RECORDS"})
        for rule, fate, _ in _ordered(rules, found):
            printer.line(f"\n{printable(rule)} {fate}".replace("\n ", "\n"))
            for example in found.examples[rule, fate]:
                printer.line(f"  {_example_text(example)}")
    printer.flush()


def _ordered(rules: RuleSet, found: DryRun) -> Iterator[tuple[str, str, int]]:
    """Yield the counts in the order of the rules; those of no rule stand last."""
    for name in [*(rule.name for rule in rules.rules), ""]:
        for (rule, fate), count in found.fates.items():
            if rule == name:
                yield rule, fate, count


def _example_text(example: Example) -> str:
    message = example.message
    value = shown(message.value[: 4 * _VALUE_CHARACTERS])
    value = value if len(value) <= _VALUE_CHARACTERS else f"{value[:_VALUE_CHARACTERS]}..."
    key = "" if message.key is None else f" key={shown(message.key)}"
    text = f"{printable(message.topic)} {message.pointer} {time_text(message.pointer)}{key} {value}"
    if example.problem:
        return f"{text}\n    {printable(example.problem)}"
    targets = ", ".join(dict.fromkeys(printable(one.topic) for one in example.outputs))
    return f"{text}\n    -> {targets}" if targets else text


def _object(found: DryRun) -> dict[str, Any]:
    return {
        "records": found.records,
        "rules": [
            {"rule": rule, "fate": fate, "records": count} for (rule, fate), count in found.fates.items()
        ],
        "topics": dict(found.topics.most_common()),
        "failed": sum(count for (_, fate), count in found.fates.items() if fate == FAILED),
        "examples": [
            {
                "rule": rule,
                "fate": fate,
                "problem": example.problem,
                "record": record_object(example.message),
                "written": [
                    record_object(
                        example.message._replace(
                            topic=one.topic, value=one.value, key=one.key, headers=one.headers
                        )
                    )
                    | {"delay": one.delay_us / 1e6}
                    for one in example.outputs
                ],
            }
            for (rule, fate), examples in found.examples.items()
            for example in examples
        ],
    }
