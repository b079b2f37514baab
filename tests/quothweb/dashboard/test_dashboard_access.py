"""Access to the pages: operators alone, by a session that ends with its token, and no other site."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from playwright.sync_api import Page, expect
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from kit.broker.brokers import BrokerProcess
from kit.deadlines import eventually
from kit.keys import KeyFiles
from kit.web.browsers import WatchedBrowser, connected, serious_findings
from kit.web.servers import TokenFile, WebProcess
from quothweb.access.sessions import COOKIE
from quothwire.security.key_file import Key

from ..conftest import StartWeb

PATHS = (
    "/", "/topics", "/topic/orders", "/topic/orders/records", "/topic/orders/tail", "/topic/orders/search",
    "/topic/orders/group/billing", "/groups", "/rules", "/transactions", "/connections", "/configuration",
    "/nothing",
)  # fmt: skip
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket&implicit_handshake=true&tab_id=t&document_id=d"
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


class Site(NamedTuple):
    """A server with tokens of operators, and of one that may use a single topic.

    revoked: an operator whose token a test removes. limited: one whose key loses its right in a test.
    """

    broker: BrokerProcess
    keys: KeyFiles
    web: WebProcess
    tokens: TokenFile
    operator: str
    second: str
    other: str
    revoked: str
    limited: str
    limited_key: Key

    @contextmanager
    def logged_in(self, token: str) -> Iterator[httpx.Client]:
        """Return a client with a session."""
        with httpx.Client(base_url=self.web.url, headers={"Accept": "text/html"}, timeout=20) as client:
            answer = client.post("/login", data={"token": token, "next": "/topics"})
            assert (answer.status_code, answer.headers["location"]) == (303, "/topics")
            yield client


@contextmanager
def site_in(folder: Path, **settings: Any) -> Iterator[Site]:
    """Start a broker with keys and a server with tokens. settings: of the server."""
    keys, tokens = KeyFiles(folder), TokenFile(folder)
    own, limited_key = keys.write_key(keys.add("web")), keys.add("lena")
    operator, second, revoked = (
        tokens.add(name, keys.write_key(keys.add(name))) for name in ("olga", "oleg", "rosa")
    )
    other = tokens.add("otto", keys.write_key(keys.add("otto", "orders")))
    limited = tokens.add("lena", keys.write_key(limited_key))
    server = WebProcess(url="", key_file=own, tokens=tokens.path, poll_interval=0.2, **settings)
    with BrokerProcess(folder / "data", **keys.settings).running() as broker:
        server.settings["url"] = broker.url
        with server.running() as web:
            yield Site(broker, keys, web, tokens, operator, second, other, revoked, limited, limited_key)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Start both for the tests of this file."""
    with site_in(tmp_path_factory.mktemp("site")) as site:
        yield site


def page_of(client: httpx.Client) -> str:
    """Load a page, and return the id by which its socket names it."""
    found = re.search(r"'client_id': '([0-9a-f-]{36})'", client.get("/topics").text)
    assert found is not None
    return found[1]


def open_page(site: Site, browser: WatchedBrowser, token: str) -> Page:
    """Log a person in, and wait until the page has its socket."""
    page = browser.context().new_page()
    page.goto(f"{site.web.url}/login?next=/topics")
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")
    return connected(page)


def upgrade(client: httpx.Client, page: str, **headers: str) -> int:
    """Ask for the socket of a page, and return the status of the answer."""
    with client.stream("GET", f"{SOCKET}&client_id={page}", headers={**UPGRADE, **headers}) as answer:
        return answer.status_code


def test_person_logs_in_and_out(site: Site, browser: WatchedBrowser) -> None:
    page = browser.context().new_page()
    page.goto(f"{site.web.url}/topics?search=a")
    assert "/login?next=" in page.url
    assert serious_findings(page) == []
    page.get_by_label("Token").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("no such token")
    page.get_by_label("Token").fill(site.operator)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    assert page.url == f"{site.web.url}/topics?search=a"
    assert site.operator not in json.dumps(page.context.cookies())
    page.get_by_role("button", name="Log out olga").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto(f"{site.web.url}/")
    assert "/login" in page.url


def test_only_operators_see_pages(site: Site) -> None:
    with site.logged_in(site.other) as client:
        for path in PATHS:
            answer = client.get(path)
            assert (answer.status_code, "no right admin" in answer.text) == (403, True), path
            assert "Overview" not in answer.text
        assert upgrade(client, "x") == 403


def test_without_a_session_nothing_is_served(site: Site) -> None:
    with site.logged_in(site.operator) as known:
        page = known.get("/topics").text
        assets = re.findall(r'"(/_nicegui/[^"]+)"', page)
        client_id = page_of(known)
    assert len(assets) > 3
    with httpx.Client(base_url=site.web.url, timeout=20) as client:
        for path in (*PATHS, *assets[:5]):
            assert client.get(path).status_code == 401, path
            assert client.get(path, headers={"Accept": "text/html"}).headers["location"].startswith("/login?")
        assert upgrade(client, client_id) == 401
        assert upgrade(client, client_id, Cookie=f"{COOKIE}=wrong") == 401
        polling = SOCKET.replace("websocket", "polling")
        assert client.get(polling).status_code == 401
    with site.logged_in(site.operator) as known:
        assert known.get(polling).status_code == 400, "there is the WebSocket alone"


def test_socket_belongs_to_the_one_that_loaded_the_page(site: Site) -> None:
    with site.logged_in(site.operator) as olga:
        page = page_of(olga)
        assert upgrade(olga, page, Origin=site.web.url) == 101
        assert upgrade(olga, page, Origin="https://evil.example") == 403
    with site.logged_in(site.second) as oleg:
        assert upgrade(oleg, page_of(oleg)) == 101
        assert upgrade(oleg, page) == 403


def test_open_page_ends_with_its_token(site: Site, browser: WatchedBrowser) -> None:
    page = open_page(site, browser, site.revoked)
    site.tokens.remove("rosa")
    os.kill(site.web.pid, signal.SIGHUP)
    expect(page.get_by_label("Token")).to_be_visible()


def test_open_page_ends_with_the_right_of_its_key(site: Site, browser: WatchedBrowser) -> None:
    page = open_page(site, browser, site.limited)
    site.keys.allow(site.limited_key, "orders")
    os.kill(site.broker.pid, signal.SIGHUP)
    expect(page.get_by_role("alert")).to_contain_text("no right admin")


def test_login_below_the_path_of_a_proxy_leads_to_the_page(tmp_path: Path) -> None:
    with site_in(tmp_path, root_path="/quoth") as site, httpx.Client(base_url=site.web.url) as client:
        client.headers["Accept"] = "text/html"
        asked = client.get("/topics?search=a")
        assert asked.headers["location"] == "/quoth/login?next=%2Ftopics%3Fsearch%3Da"
        answer = client.post("/login", data={"token": site.operator, "next": "/topics?search=a"})
        assert answer.headers["location"] == "/quoth/topics?search=a"


def test_socket_reaches_the_page_that_it_was_opened_for_alone(site: Site) -> None:
    """Its messages name a page: another one, of another token, takes none of them."""
    with site.logged_in(site.operator) as olga, site.logged_in(site.second) as oleg:
        page, foreign = page_of(oleg), page_of(olga)
        url = f"{site.web.url}{SOCKET}&client_id={page}".replace("http:", "ws:", 1)
        cookie = {"Cookie": f"{COOKIE}={oleg.cookies[COOKIE]}"}
        for named in (page, foreign, None):
            with connect(url, additional_headers=cookie) as socket:
                assert str(socket.recv(20)).startswith("0{"), "engine.io opens"
                socket.send("40")
                told = {"client_id": named, "level": "warning", "message": "told by a page"}
                socket.send(f"42{json.dumps(['log', told])}")
                if named == page:
                    site.web.wait_for("told by a page")
                else:
                    with pytest.raises(ConnectionClosed):
                        list(iter(lambda: socket.recv(20), None))
    assert site.web.stderr.count("told by a page") == 1


def test_login_leads_to_no_other_site(site: Site) -> None:
    with httpx.Client(base_url=site.web.url, timeout=20) as client:
        for wanted in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"):
            answer = client.post("/login", data={"token": site.operator, "next": wanted})
            assert (answer.status_code, answer.headers["location"]) == (303, "/"), wanted
        cross = client.post("/login", data={"token": "x"}, headers={"Origin": "https://evil.example"})
        assert cross.status_code == 403
        assert client.post("/login", content=b"token=" + b"x" * 10_000).status_code == 413


def test_another_name_and_another_site_reach_no_page(broker: BrokerProcess, start_web: StartWeb) -> None:
    """Without tokens a page of another site could give its name to this address, or open a socket."""
    web = start_web(broker.url)
    with httpx.Client(base_url=web.url, timeout=20) as client:
        assert client.get("/", headers={"Host": "evil.example"}).status_code == 421
        assert upgrade(client, "x", Host="evil.example") == 421
        assert upgrade(client, "x", Origin="https://evil.example") == 403
        assert client.get("/login").headers["location"] == "/"


def test_policy_lets_only_scripts_of_the_page_run(broker: BrokerProcess, start_web: StartWeb) -> None:
    web = start_web(broker.url)
    with httpx.Client(base_url=web.url, timeout=20) as client:
        answers = [client.get("/topics") for _ in range(2)]
        policies = [answer.headers["content-security-policy"] for answer in answers]
        nonces = [re.search(r"'nonce-([\w-]{20,})'", policy) for policy in policies]
        assert len({nonce[1] for nonce in nonces if nonce}) == 2
        for answer, policy, nonce in zip(answers, policies, nonces, strict=True):
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "script-src 'self' 'nonce-" in policy
            assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
            assert nonce is not None
            assert answer.text.count("<script") == answer.text.count(f'<script nonce="{nonce[1]}"')
            assert "http://" not in answer.text.replace("http://www.w3.org", "")
        forged = client.get("/topics", headers={"X-Forwarded-Prefix": "//evil.example"})
        assert "evil.example" not in forged.text


def test_pages_lie_below_the_path_of_a_proxy(broker: BrokerProcess, start_web: StartWeb) -> None:
    web = start_web(broker.url, root_path="/quoth")
    with httpx.Client(base_url=web.url, timeout=20) as client:
        text = eventually(lambda: client.get("/topics").text, "a page")
    assert 'href="/quoth/assets/dashboard.css' in text
    assert "/quoth/_nicegui/" in text
    assert '"href":"/quoth/groups"' in text
