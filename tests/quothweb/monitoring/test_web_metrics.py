"""`/metrics` of quoth-web, for a real broker: what is there, what it is called, and who may see it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import quoth
from kit.broker.brokers import BrokerProcess
from kit.deadlines import eventually
from kit.keys import KeyFiles
from kit.web.servers import TokenFile, WebProcess
from quothcli.generated.grafana import CHARTS, FIGURES
from quothcli.generated.prometheus import ALERTS
from quothweb.monitoring.metric_table import OF_BROKER, OF_GROUP, OF_TOPIC, PREFIX

StartBroker = Callable[..., BrokerProcess]
StartWeb = Callable[..., WebProcess]
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
POLL = {"poll_interval": "0.1"}


def scrape(web: WebProcess, token: str = "") -> str:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    found = httpx.get(f"{web.url}/metrics", headers=headers)
    assert found.status_code == 200, found.text
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    return found.text


def series_of(text: str) -> Series:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(web: WebProcess, name: str, **labels: str) -> float | None:
    return series_of(scrape(web)).get((PREFIX + name, frozenset(labels.items())))


def shows(web: WebProcess, expected: float, name: str, **labels: str) -> None:
    eventually(lambda: value(web, name, **labels) == expected, f"{name} {labels} is {expected}")


@pytest.fixture
def observed(start_broker: StartBroker, start_web: StartWeb) -> tuple[BrokerProcess, WebProcess]:
    broker = start_broker(check_interval="0.02", worker_timeout="0.1")
    return broker, start_web(broker.url, **POLL)


Observed = tuple[BrokerProcess, WebProcess]


def test_topics_and_groups_have_metrics(observed: Observed) -> None:
    broker, web = observed
    with quoth.connect(broker.url) as client:
        ack = client.publish("orders", [b"a", b"b", b"c"])
        with client.group("orders", "billing") as group:
            (message,) = group.fetch(1)
            message.ack()
    shows(web, 3, "topic_records_in_total", topic="orders")
    shows(web, 2, "group_lag_records", topic="orders", group="billing")
    found = series_of(scrape(web))

    def of(name: str, **labels: str) -> float:
        return found[PREFIX + name, frozenset(labels.items())]

    assert abs(of("topic_last_pointer_seconds", topic="orders") - ack.last / 1e6) < 1e-3
    assert 0 < of("group_lag_seconds", topic="orders", group="billing") < 60
    assert 0 <= of("group_idle_seconds", topic="orders", group="billing") < 60
    assert of("up") == 1
    assert of("topics") == 1
    assert of("records_in_total") == 3
    assert of("request_seconds_count", operation="publish") == 1
    assert of("request_seconds_bucket", operation="publish", le="+Inf") == 1
    with quoth.connect(broker.url) as client:
        client.delete_topic("orders")
    eventually(lambda: "orders" not in scrape(web), "a deleted topic has no metrics")


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="there is no promtool: apt-get install prometheus"
)
def test_promtool_finds_no_fault_in_the_names(observed: Observed) -> None:
    broker, web = observed
    with quoth.connect(broker.url) as client:
        client.publish("orders", [b"a"])
        client.group("orders", "billing").info()
    shows(web, 1, "group_lag_records", topic="orders", group="billing")
    found = subprocess.run(
        ["promtool", "check", "metrics"], input=scrape(web), capture_output=True, text=True, timeout=60
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_alerts_and_the_dashboard_ask_for_metrics_that_are_there(observed: Observed) -> None:
    broker, web = observed
    with quoth.connect(broker.url) as client:
        client.publish("orders", [b"a"])
        client.get("orders", client.publish("orders", b"b").first)
        client.group("orders", "billing").info()
        with pytest.raises(quoth.NotFound):
            client.topic("absent")
    shows(web, 2, "group_lag_records", topic="orders", group="billing")
    shows(web, 1, "errors_total", code="unknown_topic")
    eventually(lambda: value(web, "disk_level") is not None, "the broker has looked at its disk")
    there = {name for name, _ in series_of(scrape(web))} | {f"{PREFIX}alarms"}
    queries = [query for panel in (*FIGURES, *CHARTS) for query, _ in panel.queries]
    queries += [alert.expression for alert in ALERTS]
    asked = {name for query in queries for name in re.findall(rf"\b{PREFIX}\w+", query)}
    assert asked - there == set()
    labels = {label for query in queries for label in re.findall(r"by \(([a-z, ]+)\)", query)}
    assert labels <= {"le", "le, instance", "topic", "code", "code, instance"}


def test_each_counter_of_a_broker_has_a_name_and_a_text(start_broker: StartBroker) -> None:
    """Also those that are there only in a broker with keys, with rules, or after trouble."""
    broker = start_broker()
    with quoth.connect(broker.url) as client:
        client.publish("quoth.rules", b"")
        eventually(lambda: "disk_level" in client.metrics().counters, "the broker has looked at its disk")
        unknown = set(client.metrics().counters) - set(OF_BROKER)
    assert unknown == set()
    protocol = (Path(__file__).parents[3] / "client/PROTOCOL.md").read_text(encoding="utf-8")
    assert [name for name in OF_BROKER if f"`{name}`" not in protocol] == []
    assert [name for name in (*OF_TOPIC, *OF_GROUP) if f"`{name}`" not in protocol] == []


def test_topics_beyond_the_limit_are_counted_and_not_told_singly(
    start_broker: StartBroker, start_web: StartWeb
) -> None:
    broker = start_broker(check_interval="0.02")
    web = start_web(broker.url, topics_shown_max=3, **POLL)
    with quoth.connect(broker.url) as client:
        for name in "abcde":
            client.publish(name, b"x")
    shows(web, 2, "topics_without_metrics")
    shows(web, 5, "records_in_total")
    names = {dict(labels).get("topic") for _, labels in series_of(scrape(web))} - {None}
    assert names == {"a", "b", "c"}


@pytest.mark.parametrize("name", ['a"b', "a\\b", "ü {x} €", "a,b=c", "quoth_up 1"])
def test_hostile_names_of_topics_stay_labels(observed: Observed, name: str) -> None:
    broker, web = observed
    with quoth.connect(broker.url) as client:
        client.publish(name, b"x")
    shows(web, 1, "topic_records_in_total", topic=name)
    assert value(web, "up") == 1


# -- health -------------------------------------------------------------------------------------------------


def health(web: WebProcess, path: str) -> tuple[int, str]:
    found = httpx.get(f"{web.url}/{path}")
    return found.status_code, found.text.strip()


def test_health_follows_the_broker(observed: Observed) -> None:
    broker, web = observed
    eventually(lambda: health(web, "readyz") == (200, "ok"), "the broker has answered")
    assert health(web, "livez") == (200, "ok")
    assert health(web, "healthz") == (200, "fine")
    broker.kill()
    eventually(lambda: health(web, "readyz")[0] == 503, "the broker is away", seconds=60)
    assert health(web, "livez") == (200, "ok"), "the server itself lives"
    assert health(web, "healthz") == (503, "critical")
    assert value(web, "up") == 0
    assert value(web, "alarms", alarm="unreachable", severity="critical") == 1
    verbose = httpx.get(f"{web.url}/healthz?verbose").json()
    assert [one["code"] for one in verbose["alarms"]] == ["unreachable"]
    broker.start()
    eventually(lambda: health(web, "readyz") == (200, "ok"), "it is back", seconds=60)
    assert health(web, "healthz") == (200, "fine")


def test_a_broker_that_was_away_at_the_start_is_observed_once_it_is_there(
    start_broker: StartBroker, start_web: StartWeb
) -> None:
    broker = start_broker(check_interval="0.02")
    assert broker.terminate() == 0
    web = start_web(broker.url, timeout="1s", **POLL)
    assert health(web, "healthz")[0] == 503
    assert value(web, "up") == 0
    broker.start()
    with quoth.connect(broker.url) as client:
        client.publish("orders", b"x")
    shows(web, 1, "topic_records_in_total", topic="orders")


# -- access -------------------------------------------------------------------------------------------------


def test_only_an_admin_of_all_topics_sees_the_metrics(
    start_broker: StartBroker, start_web: StartWeb, tmp_path: Path
) -> None:
    keys, tokens = KeyFiles(tmp_path), TokenFile(tmp_path)
    own, operator_key, other_key = (
        keys.write_key(keys.add(name, topics))
        for name, topics in (("web", "*"), ("operator", "*"), ("other", "orders.*"))
    )
    broker = start_broker(**keys.settings)
    operator, other = tokens.add("operator", operator_key), tokens.add("other", other_key)
    web = start_web(broker.url, tokens=tokens.path, key_file=own, **POLL)
    assert "quoth_up" in scrape(web, operator)
    refused = httpx.get(f"{web.url}/metrics", headers={"Authorization": f"Bearer {other}"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "denied")
    for path in ("metrics", "healthz?verbose"):
        assert httpx.get(f"{web.url}/{path}").status_code == 401
    for path in ("livez", "readyz", "healthz"):
        assert httpx.get(f"{web.url}/{path}").status_code in (200, 503)
