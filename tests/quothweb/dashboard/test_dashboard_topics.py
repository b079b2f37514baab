"""The list of topics, which the server searches, sorts and cuts, and pages while the broker is away."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import httpx
from playwright.sync_api import expect

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import eventually
from kit.web.browsers import WatchedBrowser, connected, table_column
from kit.web.servers import WebProcess
from quothweb.dashboard.widgets.orders import KEPT, SortedOrders
from quothweb.monitoring.observer import BrokerObserver

from ..conftest import StartWeb

AWAY_S = 20.0
"""Far longer than a page waits for the broker."""


def test_table_is_searched_sorted_and_paged_by_the_server(
    broker: BrokerProcess, start_web: StartWeb, browser: WatchedBrowser
) -> None:
    with quoth.connect(broker.url) as client:
        for number in range(120):
            client.publish(f"topic.{number:03}", [b"a"] * (number % 7 + 1))
        client.publish("other", [b"a"] * 50)
    web = start_web(broker.url, poll_interval=0.2)
    page = browser.open(f"{web.url}/topics")
    main = page.get_by_role("main")
    expect(main).to_contain_text("1 to 50 of 121")
    expect(table_column(page, "Topics")).to_have_text(
        ["other", *(f"topic.{number:03}" for number in range(49))]
    )
    page.get_by_role("button", name="Next").press("Enter")
    expect(main).to_contain_text("51 to 100 of 121")
    page.get_by_role("searchbox").fill("TOPIC.11")
    expect(main).to_contain_text("10 topics")
    expect(page.get_by_role("searchbox")).to_have_value("TOPIC.11")
    page.get_by_role("button", name="Records", exact=True).click()
    expect(page.get_by_role("columnheader", name="Records", exact=True)).to_have_attribute(
        "aria-sort", "descending"
    )
    counts = sorted((str(number % 7 + 1) for number in range(110, 120)), reverse=True)
    expect(table_column(page, "Topics", 1)).to_have_text(counts)
    expect(page).to_have_url(re.compile("sort=records"))
    page.reload()
    connected(page)
    expect(page.get_by_role("searchbox")).to_have_value("TOPIC.11")
    expect(table_column(page, "Topics", 1)).to_have_text(counts)
    page.goto(f"{web.url}/topics?page=999999&sort=nothing&down=x")
    expect(main).to_contain_text("101 to 121 of 121")


def test_pages_stay_while_the_broker_is_away(
    start_broker: StartBroker, start_web: StartWeb, browser: WatchedBrowser
) -> None:
    broker = start_broker()
    with quoth.connect(broker.url) as client:
        client.publish("orders", b"a")
    web = start_web(broker.url, poll_interval=0.2, timeout=1)
    page = browser.open(f"{web.url}/topics")
    expect(page.get_by_role("main")).to_contain_text("orders")
    state = page.get_by_role("banner").locator(".badge")
    broker.kill()
    expect(state).to_contain_text("unreachable, seen")
    expect(page.get_by_role("main")).to_contain_text("figures are of that time")
    for path, content in (
        ("", "The broker does not answer"), ("topics", "orders"), ("topic/orders", "Not known while"),
        ("topic/orders/records", "no broker answers"), ("rules", "no broker answers"),
        ("configuration", "no broker answers"),
    ):  # fmt: skip
        other = browser.open(f"{web.url}/{path}", context=page.context)
        expect(other.get_by_role("main")).to_contain_text(content)
    broker.start()
    expect(state).to_have_text("fine")
    expect(page.get_by_role("main")).not_to_contain_text("does not answer")


class PatientWeb(WebProcess):
    """A server whose pages wait for the broker for far longer than a busy machine needs to show one."""

    command = (
        *WebProcess.command[:-1],
        "from quothweb.dashboard.view import PageView; "
        f"PageView.ask.__defaults__ = ({AWAY_S},)\n{WebProcess.command[-1]}",
    )


def test_no_page_waits_for_a_broker_that_hangs(start_broker: StartBroker) -> None:
    broker = start_broker()
    with quoth.connect(broker.url) as client:
        client.publish("orders", b"a")
    asking = ("/topic/orders/records", "/rules", "/configuration")
    paths = ("/", "/topic/orders", *asking)
    with (
        PatientWeb(url=broker.url, poll_interval=0.2, timeout=AWAY_S).running() as web,
        httpx.Client(base_url=web.url, timeout=AWAY_S) as http,
    ):
        eventually(lambda: "orders" in http.get("/topics").text, "the topic is listed")
        for path in paths:  # with all that only the first one loads
            http.get(path)
        broker.freeze()
        try:
            eventually(lambda: http.get("/readyz").status_code == 503, "the broker does not answer", 60)
            for path in paths:
                answer = http.get(path)
                assert answer.elapsed.total_seconds() < 0.8 * AWAY_S, f"{path} has waited for the broker"
                assert answer.is_server_error == (path in asking), f"{path} has asked the broker"
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        eventually(lambda: "durability" in http.get("/topic/orders").text, "it goes on")


class _Asked(list[str]):
    """A list of keys that counts how often all of them are asked for."""

    times = 0

    def __call__(self) -> list[str]:
        self.times += 1
        return [*self]


def _orders(keys: Callable[[], list[str]], **values: Any) -> tuple[BrokerObserver, SortedOrders[str]]:
    observer = BrokerObserver(lambda: None, 1.0)  # type: ignore[arg-type, return-value]
    return observer, SortedOrders(observer, keys, values, str)


def test_orders_are_sorted_once_a_round() -> None:
    keys = _Asked(["b", "a", "cc"])
    observer, orders = _orders(keys, size=len)
    assert orders.find("size", descending=True) == ["cc", "b", "a"]
    assert orders.find("size", descending=True) is orders.find("size", descending=True)
    assert keys.times == 1
    assert orders.find("name") == ["b", "a", "cc"]
    assert orders.find("name", "C") == ["cc"]
    assert orders.find("name", "C") is orders.find("name", "C")
    observer.rounds += 1
    keys.append("d")
    assert "d" in _after(orders, 0.0)


def _after(orders: SortedOrders[str], seconds: float) -> list[str]:
    """Return the order of names once it is so old."""
    began = time.monotonic()
    found: list[str] = []
    while "d" not in found:
        found = [*orders.find("name")]
        assert time.monotonic() - began < seconds + 5
    return found


def test_slow_order_is_kept_so_that_sorting_takes_a_small_part_of_the_time() -> None:
    keys = _Asked(map(str, range(200_000)))
    observer, orders = _orders(keys, text=hash)
    began = time.monotonic()
    orders.find("text")
    took = time.monotonic() - began
    for _ in range(100):
        observer.rounds += 1
        orders.find("text")
    assert keys.times <= 2 + (time.monotonic() - began) / (KEPT * took / 4)
