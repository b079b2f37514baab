"""The topics: lists, describes, creates, changes and deletes them, and counts their records."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from quoth.core.calls import ask
from quothweb.gateway.bodies import json_of
from quothweb.gateway.operation import Content, GatewayCall, HttpOperation
from quothweb.gateway.parameters import (
    LOG,
    TIMESTAMP,
    TOPIC,
    Parameter,
    hexadecimal,
    text_up_to,
    timestamp,
    whole,
)
from quothweb.problems import HttpProblem
from quothwire.errors import Conflict, QuothError, error, shown
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import (
    TOPICS_MAX,
    DeleteTopic,
    ListTopics,
    TopicInfo,
    Topics,
    Trimmed,
)
from quothwire.settings import NAMES, as_sent
from quothwire.text.suggestion import nearest

NO_STORE = {"Cache-Control": "no-store"}

TOPIC_EXAMPLE = {
    "name": "orders",
    "log": "6f1d2c3b4a596877",
    "first": 1767323045000001,
    "last": 1767323045000002,
    "count": 2,
    "first_ordinal": 0,
    "bytes": 4256,
    "segments": 1,
    "states": "w",
    "settings": {"durability": "written", "max_age": 604800.0, "retention": "limits"},
    "problem": "",
    "counters": {"rolls": 0},
}
TOPIC_SCHEMA = {"type": "object", "required": ["name", "log", "count"]}
SETTINGS_SCHEMA = {
    "type": "object",
    "properties": {name: {} for name in NAMES},
    "additionalProperties": False,
}
_AFTER = Parameter(
    "after",
    "List the names behind this one, in the order of their UTF-8 bytes.",
    *text_up_to(200),
    default="",
)
_LIMIT = Parameter("limit", "The most names.", *whole(1, TOPICS_MAX), default=TOPICS_MAX)


def answer(content: Any, status: int = 200, **headers: str) -> Response:
    """Return an answer in JSON that no cache keeps."""
    return JSONResponse(content, status, {**NO_STORE, **headers})


def topic_object(info: TopicInfo) -> dict[str, Any]:
    """Convert a topic to an object of JSON. The id of its log has 64 bits, so it is text."""
    return {
        **{name: getattr(info, name) for name in TopicInfo.__dataclass_fields__},
        "log": log_text(info.log),
    }


def log_text(log: int) -> str:
    """Format the id of a log: 16 hexadecimal digits."""
    return f"{log:016x}"


async def list_topics(call: GatewayCall) -> Response:
    """List some of the topics."""
    limit = call.given["limit"]
    request = ListTopics(after=call.given["after"], limit=limit)
    found = await call.client.execute(ask(Topics, request, timeout=call.client.timeout))
    following = found.names[-1] if len(found.names) >= limit else None
    return answer({"topics": found.names, "next": following})


async def describe_topic(call: GatewayCall) -> Response:
    """Describe one topic."""
    return answer(topic_object(await call.client.topic(call.topic)))


async def create_topic(call: GatewayCall) -> Response:
    """Create a topic, or find that it exists with the given settings."""
    settings = await _settings(call)
    try:
        return answer(topic_object(await call.client.create_topic(call.topic, **settings)), 201)
    except Conflict as problem:
        if problem.code != "topic_exists":
            raise
        found = await call.client.topic(call.topic)
        if found.settings != {**found.settings, **as_sent(settings)}:
            raise
        return answer(topic_object(found))


async def update_topic(call: GatewayCall) -> Response:
    """Change settings of a topic."""
    settings = await _settings(call)
    return answer(topic_object(await call.client.update_topic(call.topic, **settings)))


async def _settings(call: GatewayCall) -> dict[str, Any]:
    """Return the settings in the body. Raises ``bad_setting`` for a name of none."""
    settings = await json_of(call)
    for name in settings:
        if name not in NAMES:
            near = nearest(name, NAMES)
            hint = f"did you mean {near}?" if near else f"one of {', '.join(NAMES)}"
            raise error("bad_setting", f"there is no setting {shown(name)}", hint)
    return settings


async def delete_topic(call: GatewayCall) -> Response:
    """Delete a topic whose log has the id that the request names."""
    request = DeleteTopic(call.given["log"])
    try:
        found = await call.client.execute(ask(Trimmed, request, call.topic, timeout=call.client.timeout))
    except QuothError as problem:
        if problem.code != "unknown_topic" or not await _exists(call):
            raise
        text = f"topic {call.topic!r} has another log than {log_text(call.given['log'])}"
        raise HttpProblem("log_differs", text) from None
    return answer({"records": found.records, "bytes": found.bytes})


async def _exists(call: GatewayCall) -> bool:
    try:
        await call.client.topic(call.topic)
    except QuothError:
        return False
    return True


async def count_records(call: GatewayCall) -> Response:
    """Count the records of a range, without reading them."""
    until = call.given["until"]
    found = await call.client.count(call.topic, call.given["after"], POINTER_MAX if until is None else until)
    names = ("records", "bytes", "gone", "first", "last", "newest", "end")
    content = {name: getattr(found, name) for name in names}
    return answer({"topic": call.topic, "log": log_text(found.log), **content})


def _json(example: Any, schema: Any = None) -> tuple[Content, ...]:
    return (Content("application/json", schema or {"type": "object"}, example),)


_TOPIC_ANSWER = _json(TOPIC_EXAMPLE, TOPIC_SCHEMA)
_SETTINGS = (Content("application/json", SETTINGS_SCHEMA, {"max_age": "7d", "durability": "synced"}),)
_COUNTED = {
    "topic": "orders", "log": "6f1d2c3b4a596877", "records": 2, "bytes": 208, "gone": 0,
    "first": 1767323045000001, "last": 1767323045000002, "newest": 1767323045000002, "end": 2,
}  # fmt: skip

OPERATIONS = (
    HttpOperation(
        "list_topics", "GET", "/topics", "List topics",
        "Lists the topics on which the client has any right. `next` is the `after` of the following list.",
        list_topics, (_AFTER, _LIMIT),
        answers={200: ("The names.", _json({"topics": ["orders", "prices"], "next": None}))},
    ),
    HttpOperation(
        "describe_topic", "GET", "/topics/{topic}", "Describe a topic", "Does not open a hibernating one.",
        describe_topic, (TOPIC,), answers={200: ("The topic.", _TOPIC_ANSWER)},
    ),
    HttpOperation(
        "create_topic", "PUT", "/topics/{topic}", "Create a topic",
        "Creates the topic with the settings of the body, and the broker's for the others. Spans and sizes "
        "may have units.",
        create_topic, (TOPIC,), _SETTINGS, is_action=True,
        answers={
            201: ("It was created.", _TOPIC_ANSWER),
            200: ("It exists, with these settings.", _TOPIC_ANSWER),
        },
    ),
    HttpOperation(
        "update_topic", "PATCH", "/topics/{topic}", "Change a topic", "The other settings stay as they are.",
        update_topic, (TOPIC,), _SETTINGS, is_action=True, answers={200: ("The topic.", _TOPIC_ANSWER)},
    ),
    HttpOperation(
        "delete_topic", "DELETE", "/topics/{topic}", "Delete a topic",
        "Deletes the topic and its records. `log` confirms which: a topic that was created again has another "
        "one.",
        delete_topic,
        (TOPIC,
         Parameter("log", "The id of its log, as a description has it.", hexadecimal, LOG, required=True,
                   example="6f1d2c3b4a596877")),
        is_action=True,
        answers={200: ("What was removed.", _json({"records": 2, "bytes": 4256}))},
    ),
    HttpOperation(
        "count_records", "GET", "/topics/{topic}/count", "Count records",
        "Counts the records above `after` up to `until`, without reading them.",
        count_records,
        (TOPIC,
         Parameter("after", "A pointer or a time, exclusive.", timestamp, TIMESTAMP, default=0),
         Parameter("until", "A pointer or a time, inclusive; by default the newest.", timestamp, TIMESTAMP)),
        answers={200: ("The counts.", _json(_COUNTED))},
    ),
)  # fmt: skip
