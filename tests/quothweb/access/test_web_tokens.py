"""Tokens: each has exactly the rights of its key, ends when it is revoked, and is never written anywhere."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.daemons import DaemonProcess
from kit.deadlines import DEADLINE_S, eventually
from kit.keys import RIGHTS, KeyFiles
from kit.machine.commands import Command
from kit.web.servers import TokenFile, WebProcess, code_of, events
from quothweb.access.attempts import ATTEMPTS_MAX, WINDOW_S, WrongTokens
from quothweb.access.sessions import COOKIE, Sessions
from quothweb.access.token_file import digest_of, parse_tokens
from quothwire.errors import QuothError

from ..conftest import StartWeb


class Secured(NamedTuple):
    """A broker with keys, a server with tokens, and their files."""

    broker: BrokerProcess
    web: WebProcess
    keys: KeyFiles
    tokens: TokenFile

    def token_of_key(self, name: str, topics: str = "*") -> str:
        """Make a token with a key that has all rights on some topics."""
        path = self.keys.write_key(self.keys.add(name, topics))
        return self.tokens.add(name, path)

    def reload(self) -> None:
        """Let both read their files again."""
        _reload(self.broker, "event=reloaded")
        _reload(self.web)


@pytest.fixture
def secured(tmp_path: Path, start_broker: StartBroker, start_web: StartWeb) -> Secured:
    """Start a broker with keys and a server with tokens; the broker's file has an admin."""
    keys = KeyFiles(tmp_path)
    own = keys.write_key(keys.add("web"))
    broker = start_broker(**keys.settings)
    tokens = TokenFile(tmp_path)
    web = start_web(broker.url, key_file=own, tokens=tokens.path, allow_actions=True)
    return Secured(broker, web, keys, tokens)


@pytest.fixture
def open_web(tmp_path: Path, broker: BrokerProcess, start_web: StartWeb) -> tuple[WebProcess, TokenFile]:
    """Start a server with tokens for a broker without keys."""
    tokens = TokenFile(tmp_path)
    tokens.add("alice")
    return start_web(broker.url, tokens=tokens.path), tokens


# -- rights -------------------------------------------------------------------------------------------------

Send = Callable[[httpx.Client], httpx.Response]
GROUP = "/topics/t/groups/g"
EVENTS = {"Accept": "text/event-stream"}
OPERATIONS: dict[str, tuple[Send, tuple[str, ...]]] = {
    "publish": (lambda http: http.post("/topics/t", content=b"v"), ("publish",)),
    "publish_once": (
        lambda http: http.post("/topics/t", content=b"v", headers={"Idempotency-Key": "k"}), ("publish",),
    ),
    "read": (lambda http: http.get("/topics/t/records"), ("read",)),
    "get": (lambda http: http.get("/topics/t/records/1"), ("read",)),
    "count": (lambda http: http.get("/topics/t/count"), ("read",)),
    "events": (lambda http: http.head("/topics/t/records", headers=EVENTS), ("read",)),
    "describe": (lambda http: http.get("/topics/t"), RIGHTS),
    "create": (lambda http: http.put("/topics/t", json={}), ("admin",)),
    "update": (lambda http: http.patch("/topics/t", json={"max_age": "7d"}), ("admin",)),
    "delete": (lambda http: http.delete("/topics/t?log=0000000000000001"), ("admin",)),
    "open_group": (lambda http: http.put(GROUP, json={}), ("group",)),
    "fetch": (lambda http: http.post(f"{GROUP}/fetch"), ("group",)),
    "ack": (lambda http: http.post(f"{GROUP}/ack", json={"pointers": [1]}), ("group",)),
    "describe_group": (lambda http: http.get(GROUP), ("group", "admin")),
    "list_groups": (lambda http: http.get("/topics/t/groups"), ("group", "admin")),
    "seek": (lambda http: http.post(f"{GROUP}/seek", json={"to": "end"}), ("group", "admin")),
    "update_group": (lambda http: http.patch(GROUP, json={"paused": False}), ("admin",)),
    "delete_group": (lambda http: http.delete(GROUP), ("admin",)),
}  # fmt: skip


def test_a_token_has_exactly_the_rights_of_its_key(secured: Secured) -> None:
    """For each operation and each right: denied without it, whatever else happens with it."""
    admin = secured.token_of_key("root")
    tokens = {}
    for right in RIGHTS:
        path = secured.keys.write_key(secured.keys.add(right))
        tokens[right] = secured.tokens.add(right, path)
    text = secured.keys.text()
    for right in RIGHTS:
        others = [one for one in RIGHTS if one != right]
        head, _, rest = text.partition(f'[clients."{right}"]')
        table, separator, tail = rest.partition("[clients.")
        for other in others:
            table = table.replace(f'{other} = ["*"]\n', "")
        text = f'{head}[clients."{right}"]{table}{separator}{tail}'
    secured.keys.clients_file.write_text(text)
    secured.reload()
    for name, (send, allowed) in OPERATIONS.items():
        with secured.web.client(admin) as http:
            http.post("/topics/t", content=b"v")
            http.put(GROUP, json={})
        for right in RIGHTS:
            with secured.web.client(tokens[right]) as http:
                answer = send(http)
            is_denied = answer.status_code == 403
            assert is_denied == (right not in allowed), f"{name} with {right}: {answer.text}"
            assert not is_denied or name == "events" or code_of(answer) == "denied"


def test_topics_of_other_keys_are_not_listed(secured: Secured) -> None:
    admin, alice = secured.token_of_key("root"), secured.token_of_key("alice", "a*")
    secured.reload()
    with secured.web.client(admin) as http:
        for name in ("apples", "pears"):
            assert http.post(f"/topics/{name}", content=b"v").status_code == 201
    with secured.web.client(alice) as http:
        assert http.get("/topics").json()["topics"] == ["apples"]
        assert http.get("/status").json()["broker"]["counters"] == {}


def test_a_key_that_the_broker_does_not_know_is_refused(secured: Secured) -> None:
    token = secured.token_of_key("mallory")
    secured.keys.remove("mallory")
    secured.reload()
    with secured.web.client(token) as http:
        answer = http.get("/topics")
    assert (answer.status_code, code_of(answer)) == (403, "auth_failed")


def test_idempotency_keys_of_two_tokens_are_two(secured: Secured) -> None:
    tokens = [secured.token_of_key("alice"), secured.token_of_key("bob")]
    secured.reload()
    for token in tokens:
        with secured.web.client(token) as http:
            answer = http.post("/topics/t", content=b"v", headers={"Idempotency-Key": "k"})
            assert answer.json()["duplicate"] is False


# -- who gets in --------------------------------------------------------------------------------------------


def test_only_known_tokens_get_in(open_web: tuple[WebProcess, TokenFile], topic: str) -> None:
    web, tokens = open_web
    for header in (None, "", "Bearer", "Bearer wrong", "Basic YTpi", "Bearer " + "x" * 5_000):
        with web.client() as http:
            answer = http.get("/topics", headers={"Authorization": header} if header is not None else {})
        assert (answer.status_code, code_of(answer)) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith('Bearer realm="quoth"')
    with web.client(tokens.add("alice")) as http:
        assert http.post(f"/topics/{topic}", content=b"v").status_code == 201


def test_many_wrong_tokens_of_an_address_are_slowed_down_and_right_ones_are_not(
    open_web: tuple[WebProcess, TokenFile],
) -> None:
    web, tokens = open_web
    with web.client("wrong") as http:
        statuses = [http.get("/topics").status_code for _ in range(ATTEMPTS_MAX + 2)]
        assert statuses == [401] * ATTEMPTS_MAX + [429, 429]
        assert 0 < int(http.get("/topics").headers["retry-after"]) <= WINDOW_S
    with web.client(tokens.add("alice")) as http:
        assert http.get("/topics").status_code == 200


def test_wrong_tokens_are_counted_for_a_minute_by_network() -> None:
    wrong = WrongTokens()
    for _ in range(ATTEMPTS_MAX):
        assert wrong.count("2001:db8::1", 0.0) == 0
    assert wrong.count("2001:db8::2", 30.0) == 30.0, "the last 64 bits are the client's choice"
    assert wrong.count("2001:db8:0:1::1", 30.0) == 0
    assert wrong.count("2001:db8::1", WINDOW_S) == 0
    assert wrong.count("not an address", 0.0) == 0
    for _ in range(ATTEMPTS_MAX):
        assert wrong.count("::ffff:192.0.2.1", 0.0) == 0
    assert wrong.count("192.0.2.1", 0.0) > 0, "it is the same address"
    assert wrong.count("::ffff:192.0.2.2", 0.0) == 0, "it is another one"


def test_a_revoked_token_ends_its_streams_and_no_other(
    open_web: tuple[WebProcess, TokenFile], topic: str
) -> None:
    web, tokens = open_web
    alice, bob = tokens.add("alice"), tokens.add("bob")
    _reload(web)
    path = f"/topics/{topic}/records?after=0"
    with web.client(alice) as one, web.client(bob) as other:
        one.post(f"/topics/{topic}", content=b"v")
        with events(one, path) as first, events(other, path) as second:
            first.next(), second.next()
            tokens.remove("alice")
            _reload(web)
            assert first.next()["data"]["reason"] == "revoked"
            assert one.get("/topics").status_code == 401
            other.post(f"/topics/{topic}", content=b"more")
            assert second.next()["data"]["value"] == "more"


def test_a_revoked_token_ends_its_request_that_waits_for_the_broker(
    tmp_path: Path, start_broker: StartBroker, start_web: StartWeb
) -> None:
    """Long before its time is over. Whether its record was stored is not known, so it is not retryable."""
    broker, tokens = start_broker(), TokenFile(tmp_path)
    alice = tokens.add("alice")
    web = start_web(
        broker.url, tokens=tokens.path, timeout="10m", requests_per_token_max=1, allow_actions=True
    )
    found: list[httpx.Response] = []

    def publish() -> None:
        """Publish a record; again as long as a request of `other` has the only place."""
        while (answer := http.post("/topics/t", content=b"w")).status_code == 429:
            pass
        found.append(answer)

    with web.client(alice) as http, web.client(alice) as other:
        assert http.post("/topics/t", content=b"v").status_code == 201
        broker.kill()
        waiting = threading.Thread(target=publish)
        waiting.start()
        eventually(lambda: other.put("/topics/t", content=b"no JSON").status_code == 429, "it is in progress")
        tokens.remove("alice")
        _reload(web)
        waiting.join(DEADLINE_S)
    (answer,) = found
    assert (answer.status_code, code_of(answer)) == (503, "closed")
    assert answer.json()["error"]["retryable"] is False


def test_a_wrong_file_changes_nothing(open_web: tuple[WebProcess, TokenFile]) -> None:
    web, tokens = open_web
    alice = tokens.add("alice")
    tokens.path.write_text("[tokens.eve]\nsha256 = 'x'\n")
    os.kill(web.pid, signal.SIGHUP)
    assert "tokens.toml:2: token 'eve'" in web.wait_for("event=reload_refused")
    with web.client(alice) as http:
        assert http.get("/topics").status_code == 200


def _reload(process: DaemonProcess, line: str = "event=tokens_changed") -> None:
    before = process.stderr.count(line)
    os.kill(process.pid, signal.SIGHUP)
    eventually(lambda: process.stderr.count(line) > before, "it has reloaded")


def test_no_token_stands_in_the_log(broker: BrokerProcess, tmp_path: Path, start_web: StartWeb) -> None:
    """Nor a value, a key or an idempotency key; the access log has paths."""
    tokens = TokenFile(tmp_path)
    token = tokens.add("alice")
    web = start_web(broker.url, tokens=tokens.path, access_log=True, log_level="debug")
    headers = {"Quoth-Key": "secret-key", "Idempotency-Key": "secret-once"}
    with web.client(token) as http:
        http.post("/topics/logged", content=b"secret-value", headers=headers)
        http.post("/session", json={"token": token})
    with web.client("secret-wrong") as http:
        http.get("/topics")
    web.terminate()
    assert "method=POST path=/api/v1/topics/logged status=201" in web.stderr
    assert "token_denied" in web.stderr
    assert "secret" not in web.stderr
    assert token not in web.stderr


# -- sessions -----------------------------------------------------------------------------------------------


def test_a_session_is_a_cookie_that_scripts_and_other_sites_cannot_use(
    open_web: tuple[WebProcess, TokenFile], topic: str
) -> None:
    web, tokens = open_web
    with web.client() as http:
        assert http.post("/session", json={"token": "wrong"}).status_code == 401
        answer = http.post("/session", json={"token": tokens.add("alice")})
        assert answer.status_code == 204
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=")
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert http.get("/session").json() == {"name": "alice", "needs_token": True}
        assert http.post(f"/topics/{topic}", content=b"v").status_code == 201
        answer = http.post(f"/topics/{topic}", content=b"v", headers={"Origin": "https://evil.example"})
        assert (answer.status_code, code_of(answer)) == (403, "cross_site")
        answer = http.post(f"/topics/{topic}", content=b"v", headers={"Sec-Fetch-Site": "cross-site"})
        assert code_of(answer) == "cross_site"
        answer = http.post(f"/topics/{topic}", content=b"v", headers={"Origin": web.url})
        assert answer.status_code == 201
        assert http.delete("/session").status_code == 204
        assert http.get("/topics").status_code == 401


def test_a_login_that_is_cut_is_an_error_of_the_client(
    broker: BrokerProcess, tmp_path: Path, start_web: StartWeb
) -> None:
    web = start_web(broker.url, tokens=TokenFile(tmp_path).path, access_log=True)
    host, _, port = web.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as connection:
        head = "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
        connection.sendall(f'{head}{{"token":'.encode())
        with web.client() as http:
            assert http.get("/topics").status_code == 401, "it serves"
    assert "status=400" in web.wait_for("path=/api/v1/session")
    assert "defect" not in web.stderr


def test_a_cookie_that_was_changed_or_is_old_is_worth_nothing() -> None:
    sessions = Sessions(100)
    cookie = sessions.cookie_of(digest_of("t"), 1_000)
    assert sessions.digest_of(cookie, 1_099) == digest_of("t")
    assert sessions.digest_of(cookie, 1_100) is None
    assert Sessions(100).digest_of(cookie, 1_000) is None, "of another process"
    for position in range(len(cookie) - 1):  # of the last character some bits are none of the cookie
        changed = cookie[:position] + ("A" if cookie[position] != "A" else "B") + cookie[position + 1 :]
        assert sessions.digest_of(changed, 1_000) is None, position
    for wrong in ("", "x", "=" * 40, "ü", cookie + "AAAA", cookie[:-8]):
        assert sessions.digest_of(wrong, 1_000) is None


# -- the file -----------------------------------------------------------------------------------------------

DIGEST = "0" * 64
WRONG_FILES = [
    ("[tokens.alice]\n", "tokens.toml:1: token 'alice': the key 'sha256' is missing"),
    ('[tokens.alice]\nsha256 = "quoth_secret"\n', "tokens.toml:2: token 'alice': sha256"),
    (
        f'[tokens.alice]\nsha256 = "{DIGEST}"\nkey = "x"\n',
        "tokens.toml:3: token 'alice': there is no key 'key'",
    ),
    (f'[tokens.alice]\nsha256 = "{DIGEST}"\nkey_file = "none.key"\n', "tokens.toml:3"),
    (f'[tokens."a b"]\nsha256 = "{DIGEST}"\n', "tokens.toml:1: 'a b' is no name"),
    (
        f'[tokens.a]\nsha256 = "{DIGEST}"\n[tokens.b]\nsha256 = "{DIGEST}"\n',
        "tokens.toml:3: tokens 'a' and 'b'",
    ),
    ("[token.a]\n", "there is no key 'token' here"),
    ("[tokens", "this is no TOML"),
]


def test_errors_of_the_file_name_the_line_and_quote_no_token(tmp_path: Path) -> None:
    for text, expected in WRONG_FILES:
        with pytest.raises(QuothError) as refused:
            parse_tokens(text, tmp_path / "tokens.toml")
        assert refused.value.code == "bad_setting"
        assert expected in refused.value.text
        assert "quoth_secret" not in str(refused.value)


def test_a_file_that_others_may_write_is_refused(
    broker: BrokerProcess, tmp_path: Path, start_web: StartWeb
) -> None:
    tokens = TokenFile(tmp_path)
    tokens.path.chmod(0o622)
    web = WebProcess(url=broker.url, tokens=tokens.path)
    web.launch()
    assert web.wait() == 2
    assert "other users may write" in web.stderr


def test_the_command_prints_a_token_once_and_lines_that_admit_it(
    alone: Command, tmp_path: Path, broker: BrokerProcess, start_web: StartWeb
) -> None:
    found: dict[str, Any] = alone("key", "token", "alice", "--format", "json").objects[0]
    path = tmp_path / "tokens.toml"
    path.write_text("\n".join(found["lines"]))
    path.chmod(0o600)
    assert found["token"] not in path.read_text()
    assert len(found["token"]) > 43
    web = start_web(broker.url, tokens=path)
    with web.client(found["token"]) as http:
        assert http.get("/session").json()["name"] == "alice"


def test_the_command_writes_the_key_of_a_token(secured: Secured, alone: Command) -> None:
    path = secured.keys.write_key(secured.keys.add("carol"))
    lines = alone("key", "token", "carol", "--key-file", str(path)).lines
    assert f'    key_file = "{path}"' in lines


def test_clients_of_the_broker_are_closed_when_idle(
    broker: BrokerProcess, tmp_path: Path, start_web: StartWeb
) -> None:
    tokens = TokenFile(tmp_path)
    names = [tokens.add(f"t{number}") for number in range(4)]
    web = start_web(broker.url, tokens=tokens.path, idle_timeout=0.1, tokens_open_max=2)
    for token in names:
        with web.client(token) as http:
            assert http.get("/topics").status_code == 200
    with quoth.connect(broker.url) as client:
        eventually(lambda: client.status().counters["connections"] <= 2, "they are closed")
