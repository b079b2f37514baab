"""The rights of clients, through both protocols: what each allows, and that nothing else is done or seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq

from kit.broker.peers import FastPeer, Peers, Subscriber, code_of, refused, set_key
from kit.broker.requests import example
from kit.broker.subscribers import counted, subscriptions_are
from kit.deadlines import eventually
from kit.disk.logs import encoded
from kit.keys import DENIED, SUCCEEDED, end_of_handshake, handshake
from kit.text.wording import error_of
from quothd.access.rights import RIGHTS, Right
from quothwire.errors import QuothError
from quothwire.protocol.group_messages import DescribeGroup, GroupFetch, OpenGroup, UpdateGroup
from quothwire.protocol.messages import (
    REQUESTS,
    WITHOUT_TOPIC,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    Fetch,
    ListTopics,
    Operation,
    Ping,
    Publish,
)
from quothwire.protocol.metric_messages import GetMetrics

PROTOCOL = Path(__file__).parents[3] / "client/PROTOCOL.md"
GROUPS = {"DESCRIBE_GROUP", "LIST_GROUPS", "LIST_PENDING", "SEEK_GROUP"}
ALLOWED = {
    "publish": {"PUBLISH", "STAGE", "PUBLISH_STAGED", "ABORT", "TRANSACTION", "DESCRIBE"},
    "read": {"FETCH", "ADVANCE", "SPLIT", "COUNT", "DESCRIBE"},
    "group": {"OPEN_GROUP", "GROUP_FETCH", "GROUP_SETTLE", "COMMIT_CURSOR", "DESCRIBE", *GROUPS},
    "admin": {
        "CREATE", "UPDATE", "DELETE", "TRIM", "ROLL", "DESCRIBE", "UPDATE_GROUP", "DELETE_GROUP", *GROUPS
    },
    "": set(),
}  # fmt: skip
"""The operations on a topic by the right that allows them."""
HERE, ABSENT = "orders.here", "orders.absent"
OTHERS = "other.here", "other.absent"


def alice(**rights: str) -> str:
    """A clients file with the rights of alice."""
    rows = [f'{right} = ["{pattern}"]' for right, pattern in rights.items() if right]
    return "\n".join(["[clients.alice]", 'key = "{alice}"', *rows])


def outcome(peer: FastPeer, operation: Operation, topic: str) -> QuothError | None:
    """Ask for an operation; returns the error, if it is one."""
    payload = encoded([b"x"]) if operation is Operation.PUBLISH else None
    reply = peer.request(example(operation), "" if operation in WITHOUT_TOPIC else topic, payload).reply
    return reply if isinstance(reply, QuothError) else None


def test_every_operation_has_its_rights() -> None:
    assert set(RIGHTS) == set(Operation) == set(REQUESTS)
    assert {operation for operation in RIGHTS if not RIGHTS[operation]} == WITHOUT_TOPIC


def test_the_document_has_the_rights_of_every_operation() -> None:
    table = PROTOCOL.read_text().partition("\n## Rights\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (none|any|[a-z ]+) \| ([a-z_, ]+) \|$", table, re.MULTILINE)
    words = {"none": (), "any": tuple(Right)}
    found = {
        Operation[name.upper()]: words.get(right, tuple(right.split(" or ")))
        for right, names in rows
        if right != "right"
        for name in names.split(", ")
    }
    assert found == RIGHTS


@pytest.mark.parametrize("right", ALLOWED)
def test_a_right_allows_its_operations_on_its_topics_and_no_others(
    known: Callable[..., Any], right: str
) -> None:
    """The error does not tell whether a topic exists, and nothing changes."""
    broker = known(alice(**{right: "orders.*"}), worker_timeout=600.0)
    for topic in (HERE, OTHERS[0]):
        broker.owner.publish(topic, [b"x"])
    before = broker.owner.describe(OTHERS[0])
    peer = broker.fast("alice")
    for operation in Operation:
        allowed = operation in WITHOUT_TOPIC or operation.name in ALLOWED[right]
        for topic in (HERE, ABSENT):
            problem = outcome(peer, operation, topic)
            assert allowed == (problem is None or problem.code != "denied"), (operation, topic, problem)
        if operation not in WITHOUT_TOPIC:
            problems = [outcome(peer, operation, topic) for topic in OTHERS]
            assert [one and one.code for one in problems] == ["denied", "denied"]
            texts = {str(one).replace(topic, "TOPIC") for one, topic in zip(problems, OTHERS, strict=True)}
            assert len(texts) == 1, texts
    assert broker.owner.describe(OTHERS[0]) == before
    with refused("unknown_topic"):
        broker.owner.describe(OTHERS[1])


def test_an_error_names_the_client_and_what_it_needs(known: Callable[..., Any]) -> None:
    peer = known(alice(read="*")).fast("alice")
    problem = error_of(peer.publish, "orders", [b"x"])
    assert problem.text == "publish needs publish on 'orders', which client 'alice' does not have"
    problem = error_of(peer.call, DescribeGroup("g"), "orders")
    assert "describe group needs group or admin on 'orders'" in problem.text


def test_the_simple_protocol_has_the_same_rights(known: Callable[..., Any]) -> None:
    broker = known(alice(read="prices", publish="orders", group="jobs"))
    for topic in ("prices", "orders", "jobs", "other"):
        broker.owner.publish(topic, [b"x"])
    peer = broker.simple("alice")
    assert peer.topics() == ["jobs", "orders", "prices"]
    assert len(peer.read("prices")[1]) == 1
    peer.publish("orders", b"x")
    assert len(peer.call("group.fetch", "jobs", "g")) > 1
    denied = [
        ("read", "orders"), ("publish", "prices", "x"), ("publish", "new", "x"), ("read", "other"),
        ("group.fetch", "orders", "g"), ("group.ack", "prices", "g", "1-1-1", 1),
    ]  # fmt: skip
    for request in denied:
        assert error_of(peer.call, *request).code == "denied", request


# -- what is visible ----------------------------------------------------------------------------------------


def test_lists_and_the_status_have_the_topics_with_any_right(known: Callable[..., Any]) -> None:
    broker = known(alice(read="b*", publish="d", group="e.*", admin="f"))
    for name in ("a", "b", "bb", "c", "d", "e", "e.1", "f", "g"):
        broker.owner.publish(name, [b"x"])
    peer = broker.fast("alice")
    visible = ["b", "bb", "d", "e.1", "f"]
    assert peer.call(ListTopics()).names == visible
    assert peer.call(ListTopics(after="bb", limit=2)).names == ["d", "e.1"]
    assert peer.call(ListTopics(after="c")).names == ["d", "e.1", "f"]
    status = peer.status()
    assert [*status.states] == visible
    assert [*peer.status(after="b", limit=1).states] == ["bb"]
    assert (status.topics, status.pid, status.directory, status.counters) == (5, 0, "", {})
    assert status.server.startswith("quothd ")
    assert status.uptime > 0


def test_metrics_have_the_topics_with_any_right_and_nothing_of_the_broker(known: Callable[..., Any]) -> None:
    broker = known(alice(read="b*", admin="d"))
    for name in ("a", "b", "bb", "d"):
        broker.owner.publish(name, [b"x"])
    peer = broker.fast("alice")
    found = peer.call(GetMetrics())
    assert [row["name"] for row in found.rows] == ["b", "bb", "d"]
    assert found.topics == 3
    assert (found.counters, found.errors, found.requests, found.durations) == ({}, {}, {}, {})
    changed = peer.call(GetMetrics(since=1))
    assert sorted(row["name"] for row in changed.rows) == ["b", "bb", "d"]
    page = peer.call(GetMetrics(since=1, limit=2))
    assert (len(page.rows), page.more) == (2, True)
    rest = peer.call(GetMetrics(since=page.serial))
    assert {row["name"] for row in (*page.rows, *rest.rows)} == {"b", "bb", "d"}


@pytest.mark.parametrize("right", [*Right])
def test_metrics_have_groups_for_clients_that_may_list_them(known: Callable[..., Any], right: Right) -> None:
    broker = known(alice(**{right: "orders.*"}), check_interval=0.02)
    broker.owner.publish(HERE, [b"x"])
    broker.owner.call(OpenGroup("billing"), HERE)

    def groups(peer: FastPeer, since: int) -> list[str]:
        (row,) = peer.call(GetMetrics(since=since)).rows
        return [group["group"] for group in row.get("groups", ())]

    eventually(lambda: groups(broker.owner, 0) == ["billing"], "the topic has reported its group")
    may_list = "LIST_GROUPS" in ALLOWED[right]
    for since in (0, 1):
        assert groups(broker.fast("alice"), since) == ["billing"] * may_list


def test_the_serial_of_metrics_tells_nothing_of_hidden_topics(known: Callable[..., Any]) -> None:
    broker = known(alice(read="orders.absent"), check_interval=0.02)
    peer = broker.fast("alice")
    first, before = peer.call(GetMetrics()), broker.owner.call(GetMetrics())
    broker.owner.publish(HERE, [b"x"])
    eventually(lambda: broker.owner.call(GetMetrics()).serial > before.serial, "a change is known")
    for since in (0, 1, first.serial):
        found = peer.call(GetMetrics(since=since))
        assert (found.rows, found.serial, found.more) == ([], first.serial, False)


def test_a_client_with_rights_on_more_topics_than_it_may_subscribe_to_hears_of_all_of_them(
    known: Callable[..., Any], peers: Peers
) -> None:
    """The empty prefix is one subscription, whatever the client gets for it."""
    names = [f"t{number}" for number in range(30)]
    broker = known(alice(read='", "'.join(names)), connection_subscriptions_max=10)
    host, _, port = broker.broker.urls[0].rpartition(":")
    place = f"{host}:{int(port) + 1}"
    listener = peers.keep(Subscriber(peers.context, place, b"", key=broker.keys["alice"]))
    subscriptions_are(broker.owner, 30)
    for name in ("secret", names[0], names[-1]):
        broker.owner.publish(name, [b"x"])
    assert {listener.next()[0] for _ in range(2)} == {names[0], names[-1]}
    assert counted(broker.owner, "subscribers_closed") == 0


def test_an_admin_of_all_topics_sees_the_whole_status(known: Callable[..., Any]) -> None:
    broker = known(alice(admin="*"), worker_timeout=600.0)
    broker.owner.publish("a", [b"x"])
    status, whole = broker.fast("alice").status(), broker.owner.status()
    assert (status.directory, status.pid, status.states) == (whole.directory, whole.pid, whole.states)
    assert set(status.counters) == set(whole.counters)


# -- ways around --------------------------------------------------------------------------------------------


def test_a_publish_creates_a_topic_of_its_right_only(known: Callable[..., Any]) -> None:
    broker = known(alice(publish="orders.*", admin="prices.*"))
    peer = broker.fast("alice")
    peer.publish("orders.new", [b"x"])
    peer.call(CreateTopic(), "prices.new")
    with refused("denied"):
        peer.call(CreateTopic(), "orders.other")
    with refused("denied"):
        peer.publish("prices.other", [b"x"])
    assert broker.owner.call(ListTopics()).names == ["orders.new", "prices.new"]


@pytest.mark.parametrize(
    ("rights", "created"),
    [
        ({}, []),
        ({"read": "*"}, []),
        ({"publish": "*"}, ["jobs", "tasks"]),
        ({"admin": "*"}, ["jobs", "quoth.rules", "tasks"]),
        ({"admin": "quoth.*", "publish": "other"}, ["quoth.rules"]),
    ],
)
def test_a_group_creates_only_topics_that_its_client_may_create(
    known: Callable[..., Any], rights: dict[str, str], created: list[str]
) -> None:
    """In both protocols. A topic that is there has a group without."""
    broker = known(alice(group="*", **rights), rules=False)
    peer, simple = broker.fast("alice"), broker.simple("alice")
    for topic in ("jobs", "quoth.rules"):
        if topic in created:
            peer.call(OpenGroup("g"), topic)
        else:
            assert error_of(peer.call, OpenGroup("g"), topic).code == "unknown_topic"
    if "tasks" in created:
        simple.call("group.fetch", "tasks", "g")
    else:
        assert error_of(simple.call, "group.fetch", "tasks", "g").code == "unknown_topic"
    assert broker.owner.call(ListTopics()).names == created
    broker.owner.publish("jobs", [b"x"])
    peer.call(OpenGroup("another"), "jobs")


@pytest.mark.parametrize(("group", "settings"), [("g", {}), ("a.b", {"dead_letter": "orders.mine"})])
def test_a_group_may_name_dead_letters_that_its_client_may_publish(
    known: Callable[..., Any], group: str, settings: dict[str, Any]
) -> None:
    broker = known(alice(group="jobs", publish="orders.*"))
    broker.owner.publish("jobs", [b"x"])
    peer = broker.fast("alice")
    peer.call(OpenGroup(group, settings=settings), "jobs")
    assert peer.call(DescribeGroup(group), "jobs").group == group


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize(
    ("group", "settings"),
    [
        ("g", {"dead_letter": "other"}),
        ("g", {"dead_letter": "quoth.rules"}),
        ("a.b", {}),
        ("a.b", {"lease": 9.0}),
    ],
)
def test_a_group_names_no_dead_letters_that_its_client_may_not_publish(
    known: Callable[..., Any], group: str, settings: dict[str, Any], *, is_there: bool
) -> None:
    """Neither with a new topic nor in one that is there; not even an admin of the group's topic."""
    broker = known(alice(group="jobs", admin="jobs", publish="orders.*"))
    if is_there:
        broker.owner.publish("jobs", [b"x"])
    peer = broker.fast("alice")
    with refused("denied"):
        peer.call(OpenGroup(group, settings=settings), "jobs")
    if not is_there:
        assert broker.owner.call(ListTopics()).names == [], "no empty topic is left"
    peer.call(OpenGroup("mine", settings={"dead_letter": ""}), "jobs")
    with refused("denied"):
        peer.call(UpdateGroup("mine", {"dead_letter": "other"}), "jobs")
    assert peer.call(UpdateGroup("mine", {"lease": 9.0}), "jobs").settings["dead_letter"] == ""


def test_a_group_that_another_client_has_made_is_used_without_a_right_on_its_dead_letters(
    known: Callable[..., Any],
) -> None:
    broker = known(alice(group="jobs"))
    broker.owner.call(OpenGroup("a.b", settings={"dead_letter": "other"}), "jobs")
    peer = broker.fast("alice")
    for settings in ({}, {"dead_letter": "other"}):
        peer.call(OpenGroup("a.b", settings=settings), "jobs")
    peer.call(GroupFetch("a.b"), "jobs")


def test_a_simple_fetch_makes_no_group_whose_dead_letters_it_may_not_publish(
    known: Callable[..., Any],
) -> None:
    broker = known(alice(group="jobs", publish="jobs"))
    peer = broker.simple("alice")
    for topic_is_there in (False, True):
        assert error_of(peer.call, "group.fetch", "jobs", "a.b").code == "denied"
        if not topic_is_there:
            broker.owner.publish("jobs", [b"x"])
    peer.call("group.fetch", "jobs", "g")


def test_topics_of_the_system_are_written_by_their_admins_only(known: Callable[..., Any]) -> None:
    """A rule moves records between any topics."""
    bob = '\n[clients.bob]\nkey = "{bob}"\npublish = ["a"]\nadmin = ["quoth.*"]'
    broker = known(alice(publish="*", read="*") + bob, rules=False)
    peer = broker.fast("alice")
    problem = error_of(peer.publish, "quoth.rules", [b"x"])
    assert problem.code == "denied"
    assert "publish needs admin on 'quoth.rules'" in problem.text
    broker.fast("bob").publish("quoth.rules", [b"x"])
    assert peer.fetch("quoth.rules").values == [b"x"]


# -- another version of the file ----------------------------------------------------------------------------


def test_a_reload_takes_rights_from_requests_that_wait(known: Callable[..., Any]) -> None:
    both = '\n[clients.bob]\nkey = "{bob}"\nread = ["prices"]'
    broker = known(alice(read="*") + both)
    newest = broker.owner.publish("prices", [b"x"]).last
    peers = [broker.fast(name) for name in ("alice", "bob")]
    asked = [[peer.send(Fetch(after=newest, wait_ms=60_000), "prices") for _ in range(2)] for peer in peers]
    for peer in peers:
        peer.call(DescribeTopic(), "prices")  # behind the fetches, which wait now
    broker.reload(alice(read="orders") + both)
    assert [code_of(one) for one in peers[0].answers_to(asked[0])] == ["denied", "denied"]
    with refused("denied"):
        peers[0].fetch("prices")
    broker.owner.publish("prices", [b"y"])
    assert [code_of(one) for one in peers[1].answers_to(asked[1])] == ["", ""]
    assert broker.owner.status().waits == 0


def test_a_reload_without_a_right_or_a_client_has_an_effect_on_connected_clients(
    known: Callable[..., Any], peers: Peers
) -> None:
    broker = known(alice(publish="*", admin="*"))
    peer = broker.fast("alice")
    peer.publish("t", [b"x"])
    broker.reload(alice(read="t"))
    for request in (Publish(), DeleteTopic()):
        with refused("denied"):
            peer.call(request, "t")
    broker.reload("")
    url, key = broker.broker.urls[0], broker.keys["alice"]
    peer.send(Ping())
    assert peer.is_silent(0.3), "its connection is ended"
    assert handshake(peers.context, url, key) == DENIED
    broker.reload(alice(publish="t"))
    assert handshake(peers.context, url, key) == SUCCEEDED
    broker.fast("alice").publish("t", [b"x"])


def test_a_key_that_is_revoked_before_its_first_message_has_its_connection_ended(
    known: Callable[..., Any], peers: Peers
) -> None:
    broker = known(alice(publish="*"))
    url, key = broker.broker.urls[0], broker.keys["alice"]
    with peers.context.socket(zmq.DEALER) as socket:
        socket.set(zmq.LINGER, 0)
        set_key(socket, key)
        with socket.get_monitor_socket(SUCCEEDED | DENIED) as monitor:
            socket.connect(url)
            assert end_of_handshake(monitor) == SUCCEEDED
            broker.reload("")
            socket.send_multipart([b"", b"ping"])
            assert end_of_handshake(monitor) == DENIED, "its connection was ended, and it is refused now"
            assert not socket.poll(0)
            socket.disable_monitor()
