"""The driver of the C library for the conformance kit, see tests/vectors/README.md.

`session_driver.py PROGRAM`: each session gets a process of `driver/calls.c`, which makes the calls. This only
translates: a call of a session is one line to that program, and its lines are the result.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgpack

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kit.machine.cprograms import Calls

Given = dict[str, Any]
DURABILITIES = ["", "written", "synced"]
REASONS = ["", "trimmed", "damaged", "recreated", "ahead"]
STATES = ["unknown", "staged", "published"]
SETTINGS = ["durability", "max_age", "max_bytes", "size_limit", "count_limit", "age_limit"]
STATE = [
    *("generation", "paused", "after", "cursor", "lag", "oldest", "newest"),
    *("in_flight", "pending", "redelivered", "dead", "gone", "log"),
]
TAIL_WAIT_MS = 5_000


class Failed(Exception):
    """A call failed with a code. found: what it returned until then."""

    def __init__(self, code: str, found: Given) -> None:
        super().__init__(code)
        self.code, self.found = code, found


def as_bytes(text: str) -> str:
    """Return hex as the program reads it."""
    return text or "-"


def as_hex(text: str) -> str | None:
    """Return the hex that the program prints, None for what is absent."""
    return None if text == "~" else text.removeprefix("-")


class Session:
    """The calls of one session."""

    def __init__(self, calls: Calls, job: Given) -> None:
        self._calls = calls
        self._timeout_ms = job["timeout_ms"]
        self._parts: dict[int, str] = {}
        self._has_joined = False

    def make(self, given: Given) -> Given:
        """Make a call, and return its result as the player reads it."""
        self._calls("timeout", given.get("timeout_ms", self._timeout_ms))
        try:
            found: Given = getattr(self, f"_{given['call']}")(given)
        except Failed as problem:
            return {**problem.found, "error": problem.code}
        return found

    def _ask(self, *words: object) -> list[list[str]]:
        """Make a call that succeeds or fails as a whole; returns the words of its lines."""
        lines = [line.split() for line in self._calls(*words)]
        for line in lines:
            if line[0] == "error":
                raise Failed(line[1], {})
        return lines

    def _numbers(self, names: str, *words: object) -> Given:
        """Make a call that prints numbers, and return them under their names."""
        return dict(zip(names.split(), self._ask(*words)[0][1:], strict=False))

    # -- publishing -----------------------------------------------------------------------------------------

    def _ack(self, words: list[str]) -> Given:
        if words[0] == "error":
            return {"error": words[1]}
        first, last, count, level, duplicate = words[1:]
        return {
            "first": first,
            "last": last,
            "count": count,
            "durability": DURABILITIES[int(level)],
            "duplicate": duplicate == "1",
        }

    def _publish(self, given: Given) -> Given:
        values = given["values"]
        keys = given.get("keys", [None] * len(values))
        records = []
        for value, key, headers in zip(values, keys, given.get("headers", [{}] * len(values)), strict=True):
            plain = {name: bytes.fromhex(one) for name, one in headers.items()}
            encoded = msgpack.packb(plain).hex() if plain else "~"
            records.append(f"{as_bytes(value)}:{'~' if key is None else as_bytes(key)}:{encoded}")
        level = DURABILITIES.index(given.get("durability", ""))
        return self._ack(self._ask("publish", spaceless(given["topic"]), level, *records)[0])

    def _produce(self, given: Given) -> Given:
        timeout = given.get("timeout_ms", self._timeout_ms)
        values = map(as_bytes, given["values"])
        lines = self._calls("send", given["topic"], given["batch"], timeout, *values)
        return {"acks": [self._ack(line.split()) for line in lines]}

    # -- reading --------------------------------------------------------------------------------------------

    def _found(self, lines: list[str]) -> Given:
        found: Given = {"records": [], "gaps": []}
        code = ""
        for line in lines:
            word, *rest = line.split()
            if word == "record":
                value, key, encoded = map(as_hex, rest[1].split(":"))
                record = {"pointer": rest[0], "value": value, "key": key, "headers": headers_of(encoded)}
                found["records"].append(record)
            elif word == "gap":
                reason, after, following, records, _ = rest
                gap = {"reason": REASONS[int(reason)], "after": after, "next": following, "records": records}
                found["gaps"].append(gap)
            elif word == "error":
                code = rest[0]
            elif word == "end" and rest[1:2] == ["0"]:
                code = code or "unknown_topic"  # no answer has named a log
        if code:
            raise Failed(code, found)
        return found

    def _read(self, given: Given) -> Given:
        limit, wait_ms = given.get("limit", 1_000), given.get("wait_ms", 0)
        level = DURABILITIES.index(given.get("durability", ""))
        words = given["topic"], given["after"], 0, 0, limit, wait_ms, 0, 0, 0, level
        return self._found(self._calls("read", *words))

    def _tail(self, given: Given) -> Given:
        words = given["topic"], given["after"], 0, 0, given["records"], TAIL_WAIT_MS
        return self._found(self._calls("tail", *words))

    # -- topics and ranges ----------------------------------------------------------------------------------

    def _hello(self, _given: Given) -> Given:
        return {"server": " ".join(self._ask("hello")[0][1:-2])}

    def _ping(self, _given: Given) -> Given:
        self._ask("ping")
        return {}

    def _topics(self, _given: Given) -> Given:
        return {"names": [" ".join(line[1:]) for line in self._ask("list") if line[0] == "topic"]}

    def _described(self, *words: object) -> Given:
        return self._numbers("name log first last count", *words)

    def _topic(self, given: Given) -> Given:
        return self._described("describe", given["topic"])

    def _roll(self, given: Given) -> Given:
        return self._described("roll", given["topic"])

    def _create(self, given: Given) -> Given:
        settings = {"durability": "", **dict.fromkeys(SETTINGS[1:], -1), **given["settings"]}
        settings["durability"] = DURABILITIES.index(settings["durability"])
        return self._described(given["call"], given["topic"], *(settings[name] for name in SETTINGS))

    _update = _create

    def _delete(self, given: Given) -> Given:
        return self._numbers("records bytes first", "delete", given["topic"])

    def _trim(self, given: Given) -> Given:
        return self._numbers("records bytes first", "trim", given["topic"], given["before"])

    def _status(self, _given: Given) -> Given:
        server, *states = self._calls("states")
        return {"server": server, "states": dict(line.rsplit(" ", 1) for line in states)}

    def _advance(self, given: Given) -> Given:
        words = given["topic"], given["after"], given["records_max"], given["bytes_max"]
        return self._numbers("after until records bytes newest end", "advance", *words)

    def _split(self, given: Given) -> Given:
        words = given["topic"], given["after"], given["until"], given["parts"]
        return {"bounds": [line[1:] for line in self._ask("split", *words) if line[0] == "range"]}

    def _count(self, given: Given) -> Given:
        words = given["topic"], given["after"], given["until"]
        return self._numbers("records bytes first last newest end", "count", *words)

    # -- transactions ---------------------------------------------------------------------------------------

    def _named(self, call: str, given: Given, *words: object) -> list[str]:
        return self._ask(call, given["topic"], given["application"], given["version"], *words)[0]

    def _stage(self, given: Given) -> Given:
        batches = [",".join(map(as_bytes, values)) for values in given["batches"]]
        part = self._named("batches", given, given["part"], *batches)[1]
        self._parts[given["part"]] = part
        _, _, batches_staged, records = part.split(",")
        return {"batches": batches_staged, "records": records}

    def _publish_staged(self, given: Given) -> Given:
        parts = [self._parts[number] for number in given["parts"]]
        return self._ack(self._named("commit", given, given.get("newest", -2), *parts))

    def _transaction(self, given: Given, call: str = "inspect") -> Given:
        _, state, *numbers = self._named(call, given)
        names = ["first", "last", "count", "parts", "records", "newest_version"]
        return {"state": STATES[int(state)], **dict(zip(names, numbers, strict=True))}

    def _abort(self, given: Given) -> Given:
        return self._transaction(given, "abort")

    # -- groups ---------------------------------------------------------------------------------------------

    def _state(self, call: str, given: Given, *words: object) -> Given:
        """Make a call that prints the state of a group."""
        found, settings, problem, *_ = self._ask(call, spaceless(given["topic"]), given["group"], *words)
        state = dict(zip(STATE, found[1:], strict=True))
        return {
            **state,
            "paused": state["paused"] == "1",
            "problem": " ".join(problem[1:]),
            "mode": settings[1],
        }

    def _group(self, given: Given) -> Given:
        return self._state("group", given, given.get("start", 0), *group_settings(given))

    def _group_update(self, given: Given) -> Given:
        return self._state("group_update", given, *group_settings(given))

    def _group_info(self, given: Given) -> Given:
        return self._state(given["call"], given)

    _group_pause = _group_resume = _group_delete = _group_info

    def _group_seek(self, given: Given) -> Given:
        return self._state("group_seek", given, given["to"])

    def _group_commit(self, given: Given) -> Given:
        self._state("group_commit", given, given["pointer"])
        return {}

    def _list_groups(self, given: Given) -> Given:
        return {"names": [" ".join(line[1:]) for line in self._ask("groups", given["topic"])]}

    def _group_pending(self, given: Given) -> Given:
        lines = self._ask("group_pending", given["topic"], given["group"])
        ranges = [dict(zip(("first", "last", "attempts"), line[1:], strict=False)) for line in lines]
        return {
            "ranges": [{**one, "member": " ".join(line[5:])} for one, line in zip(ranges, lines, strict=True)]
        }

    def _group_fetch(self, given: Given) -> Given:
        if not self._has_joined:
            self._ask("group_join", given["topic"], given["group"], given["limit"], 0)
        self._has_joined = True
        lines = self._ask("group_fetch", given.get("wait_ms", 0))
        found = self._found([" ".join(["record", line[1], line[3]]) for line in lines if line[0] == "leased"])
        attempts = [line[2] for line in lines if line[0] == "leased"]
        gaps = self._found([" ".join(line) for line in lines if line[0] == "gap"])["gaps"]
        records = zip(found["records"], attempts, strict=True)
        return {"records": [{**record, "attempts": count} for record, count in records], "gaps": gaps}

    def _settle(self, given: Given, *words: object) -> Given:
        self._ask(given["call"], given["pointer"], *words)
        return {}

    def _group_ack(self, given: Given) -> Given:
        return self._settle(given)

    def _group_nack(self, given: Given) -> Given:
        return self._settle(given, given.get("delay_ms", -1), hexed(given.get("reason")))

    def _group_release(self, given: Given) -> Given:
        return self._settle(given)

    def _group_extend(self, given: Given) -> Given:
        return self._settle(given, given["lease_ms"])

    def _group_term(self, given: Given) -> Given:
        return self._settle(given, hexed(given.get("reason")))


def group_settings(given: Given) -> list[str]:
    """Return the settings of a group as the program reads them."""

    def shown(value: Any) -> str:
        return (
            ",".join(map(str, value))
            if isinstance(value, list)
            else str(int(value) if value is True else value)
        )

    return [f"{name}={shown(value)}" for name, value in given.get("settings", {}).items()]


def hexed(reason: str | None) -> str:
    """Return a text as the program reads it, if there is one."""
    return "~" if reason is None else as_bytes(reason.encode().hex())


def spaceless(topic: str) -> str:
    """Return a topic's name as a word of the program, which reads "%20" as a space."""
    return topic.replace(" ", "%20")


def headers_of(encoded: str | None) -> Given:
    """Decode headers. Those that are no map of text to binary are empty, as in Python's client."""
    try:
        found = msgpack.unpackb(bytes.fromhex(encoded)) if encoded else {}
        return {name: value.hex() for name, value in found.items()}
    except (ValueError, AttributeError):
        return {}


def play(program: Path, job: Given) -> Given:
    """Make the calls of a session, and return its result."""
    calls = Calls(program, job["url"], str(job["timeout_ms"]), str(job["resend_ms"]))
    try:
        if calls.greeting:
            results = [{"error": calls.greeting[0].split()[1]}] * len(job["calls"])
        else:
            session = Session(calls, job)
            results = [session.make(given) for given in job["calls"]]
    finally:
        calls.end()
    return {"session": job["session"], "results": results}


def main() -> None:
    """Read sessions and write results until the input ends."""
    for line in sys.stdin:
        print(json.dumps(play(Path(sys.argv[1]), json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
