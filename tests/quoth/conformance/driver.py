"""The driver of the Python client for the conformance kit, see tests/vectors/README.md.

`driver.py` uses the blocking client, `driver.py aio` that for asyncio. A call is written once: `settled`
awaits what is awaitable, and returns all else as it is.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import struct
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import quoth
import quoth.aio
from quothwire.columns import Column
from quothwire.errors import QuothError

Given = dict[str, Any]
AWAY_PAUSE_S = 0.02


async def settled(found: Any) -> Any:
    """Return the result of a coroutine or a future; all else is returned as it is."""
    if isinstance(found, Future):
        return found.result()
    return await found if inspect.isawaitable(found) else found


async def each(found: Any) -> AsyncIterator[Any]:
    """Iterate over what either client iterates over."""
    if hasattr(found, "__aiter__"):
        async for one in found:
            yield one
    else:
        for one in found:
            yield one


def unhex(values: list[str | None]) -> list[Any]:
    return [None if value is None else bytes.fromhex(value) for value in values]


def record(message: quoth.Message) -> Given:
    key = None if message.key is None else message.key.hex()
    headers = {name: value.hex() for name, value in message.headers.items()}
    return {"pointer": str(message.pointer), "value": message.value.hex(), "key": key, "headers": headers}


def digits(found: Given) -> Given:
    """Return integers as digits, as all of them may have 64 bits."""
    return {name: str(value) if type(value) is int else value for name, value in found.items()}


class Calls:
    """The calls of one session, with a client of its own."""

    def __init__(self, client: Any, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._parts: dict[int, Any] = {}
        self._groups: dict[tuple[str, str], Any] = {}
        self._leased: dict[int, Any] = {}
        """The records that were fetched for groups, by their pointers."""
        self._gaps: list[Given] = []

    async def close(self) -> None:
        """End the members of groups. What they have not settled is given back."""
        for group in self._groups.values():
            with suppress(QuothError):
                await settled(group.close())

    async def make(self, given: Given) -> Given:
        """Make a call, and return its result as the player reads it."""
        partial: Given = {}
        call: Callable[[Given, Given], Coroutine[Any, Any, Given]] = getattr(self, f"_{given['call']}")
        try:
            return digits(await call(given, partial))
        except QuothError as problem:
            return {"error": problem.code, **partial}

    async def _ask(self, method: str, given: Given, *names: str, **named: Any) -> Any:
        """Call a method of the client with these fields of the call."""
        taken = {name: given[name] for name in names if name in given} | named
        return await settled(getattr(self._client, method)(given["topic"], **taken))

    async def _hello(self, _given: Given, _partial: Given) -> Given:
        return asdict(await settled(self._client.hello()))

    async def _ping(self, _given: Given, _partial: Given) -> Given:
        await settled(self._client.ping())
        return {}

    async def _publish(self, given: Given, _partial: Given) -> Given:
        more: Given = {}
        if "headers" in given:
            more["headers"] = [unhex_headers(one) for one in given["headers"]]
        if "keys" in given:
            more["key"] = unhex(given["keys"])
        if "timeout_ms" in given:
            more["timeout"] = given["timeout_ms"] / 1_000
        return asdict(await self._ask("publish", given, "durability", value=unhex(given["values"]), **more))

    async def _produce(self, given: Given, _partial: Given) -> Given:
        timeout = given.get("timeout_ms", 1_000 * self._timeout) / 1_000
        producer = self._client.producer(given["topic"], batch=given["batch"], linger=60, timeout=timeout)
        futures = []
        for number, value in enumerate(unhex(given["values"])):
            if number % given["batch"] == 0:
                futures.append(producer.future())
            await settled(producer.send(value))
        acks = [await self._ack(future) for future in futures]
        try:
            await settled(producer.close())
        except quoth.ProducerError:
            assert any("error" in ack for ack in acks)
        return {"acks": acks}

    async def _ack(self, future: Any) -> Given:
        try:
            return digits(asdict(await settled(future)))
        except QuothError as problem:
            return {"error": problem.code}

    async def _read(self, given: Given, partial: Given) -> Given:
        gaps = partial["gaps"] = []
        found = await self._ask(
            "read",
            given,
            "limit",
            "durability",
            after=int(given["after"]),
            timeout=given.get("wait_ms", 0) / 1_000,
            on_gap=lambda gap: gaps.append(digits(asdict(gap))),
        )
        return {"records": [record(message) for message in found], "gaps": gaps}

    async def _tail(self, given: Given, partial: Given) -> Given:
        gaps: list[Given] = []
        records: list[Given] = []
        partial |= {"records": records, "gaps": gaps}
        tail = self._client.tail(
            given["topic"],
            after=int(given["after"]),
            on_gap=lambda gap: gaps.append(digits(asdict(gap))),
        )
        async for message in each(tail):
            records.append(record(message))
            if len(records) == given["records"]:
                break
        return {"records": records, "gaps": gaps}

    async def _topics(self, _given: Given, _partial: Given) -> Given:
        return {"names": await settled(self._client.topics())}

    async def _topic(self, given: Given, _partial: Given) -> Given:
        return asdict(await self._ask("topic", given))

    async def _create(self, given: Given, _partial: Given) -> Given:
        return asdict(await self._ask("create_topic", given, **given["settings"]))

    async def _update(self, given: Given, _partial: Given) -> Given:
        return asdict(await self._ask("update_topic", given, **given["settings"]))

    async def _roll(self, given: Given, _partial: Given) -> Given:
        return asdict(await self._ask("roll", given))

    async def _delete(self, given: Given, _partial: Given) -> Given:
        return asdict(await self._ask("delete_topic", given))

    async def _trim(self, given: Given, _partial: Given) -> Given:
        return asdict(await self._ask("trim", given, before=int(given["before"])))

    async def _status(self, _given: Given, _partial: Given) -> Given:
        return asdict(await settled(self._client.status()))

    async def _advance(self, given: Given, _partial: Given) -> Given:
        limits = {"max_records": int(given["records_max"]), "max_bytes": int(given["bytes_max"])}
        return asdict(await self._ask("advance", given, after=int(given["after"]), **limits))

    async def _split(self, given: Given, _partial: Given) -> Given:
        numbers = {name: int(given[name]) for name in ("after", "until", "parts")}
        found = await self._ask("split", given, **numbers)
        return {"bounds": [[str(number) for number in one] for one in found]}

    async def _count(self, given: Given, _partial: Given) -> Given:
        numbers = {name: int(given[name]) for name in ("after", "until")}
        return asdict(await self._ask("count", given, **numbers))

    async def _stage(self, given: Given, _partial: Given) -> Given:
        part = self._transaction_of(given).part(given["part"], timeout=self._timeout)
        for values in given["batches"]:
            await settled(part.append(column(unhex(values))))
        staged = self._parts[given["part"]] = await settled(part.finish())
        return dict(staged._asdict())

    async def _publish_staged(self, given: Given, _partial: Given) -> Given:
        parts = [self._parts[number] for number in given["parts"]]
        newest = int(given["newest"]) if "newest" in given else None
        publishing = self._transaction_of(given).publish(parts, newest=newest, timeout=self._timeout)
        return asdict(await settled(publishing))

    async def _abort(self, given: Given, _partial: Given) -> Given:
        return asdict(await settled(self._transaction_of(given).abort()))

    async def _transaction(self, given: Given, _partial: Given) -> Given:
        return asdict(await settled(self._transaction_of(given).status()))

    # -- groups ---------------------------------------------------------------------------------------------

    async def _group(self, given: Given, _partial: Given) -> Given:
        return asdict(await settled(self._group_of(given).info()))

    async def _group_info(self, given: Given, partial: Given) -> Given:
        return await self._group(given, partial)

    async def _list_groups(self, given: Given, _partial: Given) -> Given:
        return {"names": [one.group for one in await self._ask("groups", given)]}

    async def _group_fetch(self, given: Given, partial: Given) -> Given:
        group = self._group_of(given)
        self._gaps = partial["gaps"] = []
        found = await settled(group.fetch(given["limit"], timeout=given.get("wait_ms", 0) / 1_000))
        self._leased |= {message.pointer: message for message in found}
        records = [{**record(message), "attempts": str(message.attempts)} for message in found]
        return {"records": records, "gaps": self._gaps}

    async def _group_ack(self, given: Given, _partial: Given) -> Given:
        await settled(self._leased[int(given["pointer"])].ack())
        return {}

    async def _group_nack(self, given: Given, _partial: Given) -> Given:
        delay = given["delay_ms"] / 1_000 if "delay_ms" in given else None
        await settled(self._leased[int(given["pointer"])].nack(delay, reason=given.get("reason", "")))
        return {}

    async def _group_release(self, given: Given, _partial: Given) -> Given:
        await settled(self._leased[int(given["pointer"])].release())
        return {}

    async def _group_extend(self, given: Given, _partial: Given) -> Given:
        await settled(self._leased[int(given["pointer"])].extend(given["lease_ms"] / 1_000))
        return {}

    async def _group_term(self, given: Given, _partial: Given) -> Given:
        await settled(self._leased[int(given["pointer"])].term(given.get("reason", "")))
        return {}

    async def _group_seek(self, given: Given, _partial: Given) -> Given:
        return asdict(await settled(self._group_of(given).seek(place(given["to"]))))

    async def _group_update(self, given: Given, _partial: Given) -> Given:
        return asdict(await settled(self._group_of(given).update(**given["settings"])))

    async def _group_pause(self, given: Given, _partial: Given) -> Given:
        return asdict(await settled(self._group_of(given).pause()))

    async def _group_resume(self, given: Given, _partial: Given) -> Given:
        return asdict(await settled(self._group_of(given).resume()))

    async def _group_delete(self, given: Given, _partial: Given) -> Given:
        return asdict(await settled(self._group_of(given).delete()))

    async def _group_pending(self, given: Given, _partial: Given) -> Given:
        return {"ranges": [digits(one._asdict()) for one in await settled(self._group_of(given).pending())]}

    async def _group_commit(self, given: Given, _partial: Given) -> Given:
        cursor = self._client.cursor(given["topic"], given["group"])
        await settled(cursor.commit(int(given["pointer"])))
        return {}

    def _group_of(self, given: Given) -> Any:
        """Return the member of the session in a group, made with the settings of its first call."""
        named = given["topic"], given["group"]
        if named not in self._groups:
            settings = given.get("settings", {}) if given["call"] == "group" else {}
            self._groups[named] = self._client.group(
                *named,
                start=place(given.get("start", "0")),
                on_gap=lambda gap: self._gaps.append(digits(asdict(gap))),
                **settings,
            )
        return self._groups[named]

    def _transaction_of(self, given: Given) -> Any:
        return self._client.transaction(given["topic"], given["application"], int(given["version"]))


def unhex_headers(headers: dict[str, str]) -> dict[str, bytes]:
    return {name: bytes.fromhex(value) for name, value in headers.items()}


def place(written: str) -> Any:
    """Return a place of a group as the client takes it."""
    return written if written == "end" else int(written)


def column(values: list[bytes]) -> Column:
    """Return values as the buffers of a batch."""
    ends = list(itertools.accumulate(map(len, values), initial=0))
    return Column(struct.pack(f"<{len(ends)}i", *ends), b"".join(values))


async def play(job: Given, connect: Callable[..., Any]) -> Given:
    """Make the calls of a session, and return its result."""
    timeout = job["timeout_ms"] / 1_000
    try:
        client = await settled(connect(job["url"], timeout=timeout))
    except QuothError as problem:
        return {"session": job["session"], "results": [{"error": problem.code}] * len(job["calls"])}
    client._timing.resend = job["resend_ms"] / 1_000
    client._timing.publish_wait = 0.0
    client._timing.away_pause = AWAY_PAUSE_S
    try:
        calls = Calls(client, timeout)
        results = [await calls.make(given) for given in job["calls"]]
        await calls.close()
    finally:
        await settled(client.close())
    return {"session": job["session"], "results": results}


async def main() -> None:
    """Read sessions and write results until the input ends."""
    connect = quoth.aio.connect if sys.argv[1:] == ["aio"] else quoth.connect
    for line in sys.stdin:
        print(json.dumps(await play(json.loads(line), connect)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
