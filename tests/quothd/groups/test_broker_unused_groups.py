"""Groups that are not used any more are named, and none is removed."""

from __future__ import annotations

from collections.abc import Callable

from kit.broker.peers import FastPeer, Peers
from kit.deadlines import eventually
from quothd import Broker
from quothwire.protocol.group_messages import DescribeGroup, ListGroups, OpenGroup


def _problem(fast: FastPeer, group: str) -> str:
    return str(fast.call(DescribeGroup(group), "t").problem)


def test_a_group_that_has_left_records_for_too_long_says_so(
    embed: Callable[..., Broker], peers: Peers
) -> None:
    fast = peers.fast(embed(port=0, group_idle=0.05))
    fast.publish("t", [b"x"])
    for group, start in (("left", 0), ("done", -1)):
        fast.call(OpenGroup(group, start=start), "t")
    eventually(lambda: _problem(fast, "left").startswith("not used for "), "the group is reported")
    assert _problem(fast, "done") == "", "it has no lag"
    listed = {one["group"]: one["problem"] for one in fast.call(ListGroups(), "t").groups}
    assert [*listed] == ["done", "left"]
    assert listed["left"].startswith("not used for ")
