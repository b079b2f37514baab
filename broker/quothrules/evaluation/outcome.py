"""The outcome of the rules for one record: what is to be written, and what each rule did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

ROUTED, PASSED, DROPPED, DUPLICATE = FATES = ("routed", "passed", "dropped", "duplicate")
"""Fates that a rule gives to a record: written, only changed, dropped, dropped as a duplicate."""


class RoutedRecord(NamedTuple):
    """A record to write. delay_us: it is written so many microseconds after its source was stored."""

    topic: str
    value: bytes
    key: bytes | None
    headers: Mapping[str, bytes]
    delay_us: int = 0


class Step(NamedTuple):
    """Names a rule, and the fate that it gave to a record, see `FATES`."""

    rule: str
    fate: str


class RuleOutcome(NamedTuple):
    """The outputs of the rules for one record, and the steps of the rules that took it, in order.

    Without a step no rule matched. refused: it was routed as often as the rule set allows, so its outputs
    were left out.
    """

    outputs: tuple[RoutedRecord, ...]
    steps: tuple[Step, ...]
    refused: bool = False
