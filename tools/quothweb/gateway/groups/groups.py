"""The groups of a topic: opens, lists, describes, changes, moves and deletes them."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from quoth.core.calls import ask
from quoth.groups.options import place
from quothweb.gateway.bodies import json_of
from quothweb.gateway.operation import Content, GatewayCall, HttpOperation
from quothweb.gateway.parameters import GROUP, TOPIC, Parameter, pointer_of, text_up_to, whole
from quothweb.gateway.topics import answer, log_text
from quothwire.errors import error, shown
from quothwire.protocol.group_messages import (
    GROUPS_MAX,
    DeleteGroup,
    DescribeGroup,
    GroupInfo,
    Groups,
    ListGroups,
    OpenGroup,
    SeekGroup,
    UpdateGroup,
)
from quothwire.protocol.group_settings import GROUP_BYTES_MAX, NAMES, GroupSettings, as_sent
from quothwire.protocol.messages import Request

_NO_CHANGE = -1


async def open_group(call: GatewayCall) -> Response:
    """Create a group, or find that it exists with the given settings."""
    given = await json_of(call)
    start = _place(given.pop("start", "begin"))
    settings = as_sent(given)
    GroupSettings.of(settings)
    return await _group(call, OpenGroup(call.given["group"], start, settings))


async def describe_group(call: GatewayCall) -> Response:
    """Describe one group."""
    return await _group(call, DescribeGroup(call.given["group"]))


async def update_group(call: GatewayCall) -> Response:
    """Change settings of a group, pause it, or let it go on."""
    given = await json_of(call)
    paused = given.pop("paused", None)
    if not isinstance(paused, bool | None):
        raise error("bad_setting", f"paused is true or false, not {shown(paused)}")
    settings = as_sent(given)
    GroupSettings.of(settings)
    return await _group(
        call, UpdateGroup(call.given["group"], settings, _NO_CHANGE if paused is None else int(paused))
    )


async def seek_group(call: GatewayCall) -> Response:
    """Let a group go on at another place. No lease is left."""
    given = await json_of(call)
    if list(given) != ["to"]:
        raise error("bad_request", "the body names the place: to", 'like {"to": "begin"}')
    return await _group(call, SeekGroup(call.given["group"], _place(given["to"])))


async def delete_group(call: GatewayCall) -> Response:
    """Delete a group; answers with its last state."""
    return await _group(call, DeleteGroup(call.given["group"]))


async def list_groups(call: GatewayCall) -> Response:
    """List some of the groups of a topic."""
    limit = call.given["limit"]
    request = ListGroups(after=call.given["after"], limit=limit)
    found = await call.client.execute(ask(Groups, request, call.topic, timeout=call.client.timeout))
    following = found.groups[-1]["group"] if len(found.groups) >= limit else None
    return answer({"groups": found.groups, "next": following})


async def _group(call: GatewayCall, request: Request) -> Response:
    found = await call.client.execute(ask(GroupInfo, request, call.topic, timeout=call.client.timeout))
    content = {name: getattr(found, name) for name in GroupInfo.__dataclass_fields__}
    return answer({"topic": call.topic, **content, "log": log_text(found.log)})


def _place(given: object) -> int:
    """Return the pointer above which a group begins: begin, end, a pointer, or a time."""
    if isinstance(given, str | int) and not isinstance(given, bool):
        if isinstance(given, str) and given.isascii() and given.isdecimal():
            return place(pointer_of(given))
        return place(given)
    raise error("bad_pointer", f"the place is begin, end, a pointer or a time, not {shown(given)}")


EXAMPLE: dict[str, Any] = {
    "topic": "orders", "log": "6f1d2c3b4a596877", "group": "billing",
    "settings": {"mode": "at_least_once", "lease": 30.0}, "generation": 1, "paused": False, "after": 0,
    "cursor": 0, "lag": 2, "oldest": 1767323045000001, "newest": 1767323045000002, "in_flight": 0,
    "pending": 0, "redelivered": 0, "dead": 0, "gone": 0, "members": [], "idle": 0.0, "problem": "",
}  # fmt: skip
_PATH = "/topics/{topic}/groups/{group}"
_GROUP = {200: ("The group.", (Content("application/json", {"type": "object"}, EXAMPLE),))}
_PLACE = {"type": ["string", "integer"], "examples": ["begin", "end", "-1h", 1767323045000001]}
_SETTINGS: dict[str, Any] = {name: {} for name in NAMES}


def _body(example: Any, **properties: Any) -> tuple[Content, ...]:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return (Content("application/json", schema, example),)


OPERATIONS = (
    HttpOperation(
        "list_groups", "GET", "/topics/{topic}/groups", "List groups",
        "Lists the groups and cursors of a topic. `next` is the `after` of the following list.", list_groups,
        (TOPIC,
         Parameter("after", "The names behind this one.", *text_up_to(GROUP_BYTES_MAX), default=""),
         Parameter("limit", "The most groups.", *whole(1, GROUPS_MAX), default=GROUPS_MAX)),
        answers={200: ("The groups.", (
            Content("application/json", {"type": "object"},
                    {"groups": [{"group": "billing"}], "next": None}),))},
    ),
    HttpOperation(
        "open_group", "PUT", _PATH, "Open a group",
        "Creates the group with these settings, from `start` on, unless it exists. One that exists has to "
        "have the settings that are named.",
        open_group, (TOPIC, GROUP), _body({"start": "begin", "lease": "1m"}, start=_PLACE, **_SETTINGS),
        answers=_GROUP,
    ),
    HttpOperation(
        "describe_group", "GET", _PATH, "Describe a group", "Its settings, place, members and counts.",
        describe_group, (TOPIC, GROUP), answers=_GROUP,
    ),
    HttpOperation(
        "update_group", "PATCH", _PATH, "Change a group",
        "Changes settings; `paused` lets it hand out nothing, or go on.",
        update_group, (TOPIC, GROUP), _body({"paused": True}, paused={"type": "boolean"}, **_SETTINGS),
        answers=_GROUP, is_action=True,
    ),
    HttpOperation(
        "delete_group", "DELETE", _PATH, "Delete a group", "The records of the topic stay.",
        delete_group, (TOPIC, GROUP), answers=_GROUP, is_action=True,
    ),
    HttpOperation(
        "seek_group", "POST", f"{_PATH}/seek", "Move a group",
        "Lets the group go on at another place, forward or back, and ends all leases.",
        seek_group, (TOPIC, GROUP), _body({"to": "begin"}, to=_PLACE), answers=_GROUP, is_action=True,
        needs_body=True,
    ),
)  # fmt: skip
