"""`quoth bench group`: the command."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from quothbench import options
from quothbench.groups import quoth_members, rates, state, waiting
from quothbench.groups.rabbitmq_members import RABBITMQ_CONSUMERS
from quothbench.groups.rates import RateBench
from quothbench.groups.redis_members import REDIS_CONSUMERS
from quothbench.groups.rows import COLUMNS, GroupRows
from quothbench.load.driver import VALUE
from quothbench.peers.comparison import PeerName
from quothbench.report import Report
from quothcli.cli.command import command, group
from quothcli.cli.exit_status import CommandStatus
from quothcli.cli.options import WithoutBroker

CONSUMERS = {PeerName.REDIS: REDIS_CONSUMERS, PeerName.RABBITMQ: RABBITMQ_CONSUMERS}
STARTS = 5


class GroupFigure(StrEnum):
    """The figures that are measured."""

    READER = "reader"
    REDIS = "redis"
    RABBITMQ = "rabbitmq"
    LATENCY = "latency"
    MEMORY = "memory"
    ACKS = "acks"
    START = "start"


class GroupPlan(NamedTuple):
    """The sizes of the figures. records: that members share. acks: records acknowledged in random order.

    waiting: groups whose members wait. groups: of a topic that a broker starts with.
    """

    figures: Collection[GroupFigure]
    members: Collection[int]
    pairs: int
    records: int
    acks: int
    waiting: int
    groups: int


app = group()


@command(
    app,
    "group",
    "quoth bench group",
    "quoth bench group --figure reader --figure redis --members 4 --pairs 21",
    "quoth bench group --figure acks --format json",
)
def measure_groups(
    session: WithoutBroker,
    figures: Annotated[
        list[GroupFigure] | None,
        typer.Option("--figure", help="Which figures; may be repeated (default: all)."),
    ] = None,
    members: Annotated[
        list[int] | None,
        options.number("members", "Member processes; may be repeated (default: 1, 4 and 16)."),
    ] = None,
    pairs: options.Pairs = options.PAIRS_MIN,
    records: Annotated[
        int, options.number("records", "Records that members share; one by one a fifth of it.", 5)
    ] = 1_000_000,
    acks: Annotated[
        int, options.number("acks", "Records that are acknowledged in random order.", state.BATCH_RECORDS)
    ] = 1_000_000,
    waiting_groups: Annotated[
        int, options.number("waiting", "Groups whose members wait for records.")
    ] = 1_000,
    groups: Annotated[int, options.number("groups", "Groups of a topic that a broker starts with.")] = 10_000,
    directory: options.Directory = None,
) -> int:
    """Measure members of groups beside readers and other systems.

    Records a second of several members, each a process, until all records are acknowledged: batches, batches
    whose messages are looked at, and messages that are acknowledged one by one. In turn with one plain reader
    of the same topic, with as many consumers of a group of Redis Streams, and of a quorum queue of RabbitMQ,
    in each way that may be the fastest. A measurement fails unless each record was delivered once.

    Then the time from a publish to a waiting member, in turn with a tail; the memory of groups; the log of a
    group whose records are acknowledged in random order; the first request to a topic with many groups after
    a start. A peer is skipped where its server or its library is not installed: apt install redis-server
    rabbitmq-server erlang-base; pip install 'quoth[bench]'. A row that cannot be measured names its problem,
    and the exit status is 1.
    """
    plan = GroupPlan(
        figures or tuple(GroupFigure), members or rates.MEMBERS, pairs, records, acks, waiting_groups, groups
    )
    consumers = {name: peer for name, peer in CONSUMERS.items() if GroupFigure(name) in plan.figures}
    conditions = {
        **rates.conditions(consumers),
        "durability": "written",
        "load": f"values of {len(VALUE)} bytes, sent one by one; loopback",
        "members": f"batches({quoth_members.RECORDS_MAX:,}), max_in_flight {quoth_members.IN_FLIGHT:,}",
        "pairs": pairs,
    }
    with options.folder(directory) as made:
        rows = GroupRows(Report(session.printer, "group", conditions, COLUMNS))
        measured = run(rows, made, plan)
    return CommandStatus.DONE if measured else CommandStatus.FAILED


def run(rows: GroupRows, directory: Path, plan: GroupPlan) -> bool:
    """Measure the figures of a plan. Returns True if every row could be measured."""
    figures = plan.figures
    bench = RateBench(directory, rows, tuple(plan.members), plan.pairs, rates.stored(plan.records))
    whole = True
    if GroupFigure.READER in figures:
        bench.beside_reader()
    for name, consumers in CONSUMERS.items():
        if GroupFigure(name) in figures and not consumers.peer.missing():
            whole &= bench.beside_peer(name, consumers)
    if GroupFigure.LATENCY in figures:
        waiting.measure(directory, rows, plan.pairs)
    if GroupFigure.MEMORY in figures:
        state.measure_memory(directory, rows, plan.waiting)
    if GroupFigure.ACKS in figures:
        state.measure_acks(directory, rows, plan.acks)
    if GroupFigure.START in figures:
        state.measure_starts(directory, rows, plan.groups, STARTS)
    return whole
