"""The configuration of `quoth-web`: one frozen dataclass, and a description of each key.

Its file is TOML, a variable is ``QUOTH_WEB_`` and the key in capitals.
"""

# ruff: noqa: RUF009  # a call after = makes a field

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from quoth.core.options import DEFAULT_URL
from quothwire.batch import BATCH_BYTES_MAX
from quothwire.config import sources, template
from quothwire.config.addresses import is_loopback
from quothwire.config.config_key import File, Schema, Size, Span, described
from quothwire.config.sources import Sourced
from quothwire.errors import QuothError, error
from quothwire.text.variables import WEB_PREFIX, check_web_variables

PORT_MAX = 65_535
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
WHOLE_BODIES = 8
"""Bodies of the largest size that are held at once, where small ones take no space."""

_address = partial(described, "Address", live=False)
_broker = partial(described, "The broker", live=False)
_access = partial(described, "Access", live=False)
_limit = partial(described, "Limits", live=False, least=1)
_log = partial(described, "The log on stderr")


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The settings of one `quoth-web`: times in seconds, sizes in bytes.

    `KEYS` describes each of them. A wrong value raises `RequestError` ``bad_setting``.
    """

    host: str = _address("127.0.0.1", "The address to listen on.", "Loopback: no other machine can reach it.")
    port: int = _address(8080, "The port; 0: any free one.", "A usual port for HTTP that needs no privilege.")
    insecure: bool = _address(
        False,
        "Allow other machines without `tokens`; every program that reaches the port may do anything.",
        "Without tokens no client is authenticated: the port opens to a network only if this is wanted.",
    )
    hosts: tuple[str, ...] = _address(
        (),
        "More names in the header Host that are accepted where there are no `tokens`.",
        "Loopback and `host` only: a web page that gives its own name to this address reads nothing.",
    )
    root_path: str = _address(
        "", "The path below which a proxy offers this server, like /quoth.", "Most have a name of their own."
    )
    trusted_proxies: tuple[str, ...] = _address(
        (),
        "Addresses of proxies whose headers X-Forwarded-For and X-Forwarded-Proto are believed.",
        "Any client can write these headers.",
    )

    url: str = _broker(DEFAULT_URL, "The broker.", "The address at which a broker listens by default.")
    key_file: File = _broker(
        "",
        "The key file with which metrics and pages ask the broker, and requests where there are no `tokens`.",
        "A broker without keys needs none.",
    )
    timeout: Span = _broker(
        10.0,
        "Time that the broker may take to answer a request, and may be away meanwhile.",
        "The default of all clients.",
        least=0.1,
    )

    poll_interval: Span = _broker(
        2.0,
        "Time between two looks at the broker, for metrics, health and pages.",
        "A look costs the broker a tenth of a millisecond, and more for topics that have changed.",
        least=0.1,
    )

    tokens: File = _access(
        "",
        "The file with the tokens that requests need; empty: none is needed.",
        "With it each request needs a token. A reload replaces it as a whole.",
        live=True,
    )
    dashboard: bool = _access(
        True,
        "Serve the pages of the dashboard below /.",
        "A person sees what happens without another program; without pages the server needs 25 MB less.",
    )
    session_max_age: Span = _access(
        12 * 3_600.0,
        "Time after which a person who has logged in does so again.",
        "A day of work; a token has no end.",
        least=1,
    )
    allow_actions: bool = _access(
        False,
        "Let requests create, change and delete topics, and change, move and delete groups.",
        "Reading, publishing and working on a group is enough for most; commands do the rest.",
    )
    payloads: bool = _access(
        True,
        "Show the content of records; off: their number, times and sizes only.",
        "The broker's rights say who may read what.",
    )
    public_cache: bool = _access(
        False,
        "Let caches that many clients share keep the records of a past range.",
        "Only the client's own cache keeps them: a shared one asks for no token.",
    )
    cors_origins: tuple[str, ...] = _access(
        (),
        "Origins of web pages whose scripts may send requests, like https://example.org.",
        "None: a page of another site neither reads nor writes.",
    )

    body_bytes_max: Size = _limit(
        BATCH_BYTES_MAX,
        "Size of the body of a request.",
        "A batch of the broker has as much.",
    )
    bodies_bytes_max: Size = _limit(
        WHOLE_BODIES * BATCH_BYTES_MAX,
        "Size of the bodies of all requests in progress; above it the answer is busy.",
        "It limits the memory that clients can fill.",
    )
    request_timeout: Span = _limit(
        30.0,
        "Time in which a client sends its request, or takes a part of the answer.",
        "Slower connections are closed, so that they do not use up the others.",
        least=0.1,
    )
    connections_max: int = _limit(
        1_000,
        "Requests in progress; more get the status 503. Twice as many connections may be open.",
        "Each takes a descriptor and some memory; the unit has enough of them.",
    )
    streams_max: int = _limit(
        500,
        "Requests at once that wait for records or follow a topic.",
        "Each is a long poll at the broker.",
    )
    requests_per_token_max: int = _limit(
        200,
        "Requests of one token in progress; more get the status 429.",
        "One client must not take all connections; without `tokens` the limit is `connections_max`.",
    )
    tokens_open_max: int = _limit(
        100,
        "Connections to the broker that are open at once, one for each token in use.",
        "Each takes a thread and some descriptors; the idlest is closed for another one.",
    )
    idle_timeout: Span = _limit(
        300.0,
        "Time without a request after which the connection of a token to the broker is closed.",
        "Opening it again takes milliseconds.",
        least=0.1,
    )
    stop_timeout: Span = _limit(
        10.0,
        "Time that stopping may take; streams end at once.",
        "Requests in progress get their answers.",
        least=0,
    )
    topics_shown_max: int = _limit(
        1_000,
        "Topics with metrics of their own; of the others only sums are shown.",
        "A series for each topic costs the monitoring memory.",
    )

    log_level: str = _log(
        "info",
        f"Lowest level of the events in the log: {', '.join(LOG_LEVELS)}.",
        "Info covers starts, stops and reloads.",
        choices=LOG_LEVELS,
    )
    log_format: str = _log(
        "text",
        "Format of the log: text for people, or json, one object a line.",
        "In both formats a line is one event.",
        choices=LOG_FORMATS,
    )
    access_log: bool = _log(
        False,
        "Log each request: its method, path and status, never a token, a key or a value.",
        "A broker with keys has an audit log; a proxy has one of its own.",
        live=False,
    )

    def __post_init__(self) -> None:
        for key in KEYS.values():
            key.check(getattr(self, key.name))
        _check_url(self.url)
        if not 0 <= self.port <= PORT_MAX:
            raise error("bad_setting", f"port is 0 to {PORT_MAX}, not {self.port}")
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            text = f"root_path is a path like /quoth, not {self.root_path!r:.100}"
            raise error("bad_setting", text, "it begins with / and does not end with it")
        for origin in self.cors_origins:
            _check_origin(origin)

    def check_exposure(self) -> None:
        """Raise ``bad_setting`` if other machines reach the port, and nothing authenticates them."""
        if not (is_loopback(self.host) or self.tokens or self.insecure):
            raise error(
                "bad_setting",
                f"{self.host} can be reached from other machines, and without tokens every client there has "
                "the rights of this server",
                "listen on 127.0.0.1, or set tokens; --insecure lets every client in",
            )


def _check_url(url: str) -> None:
    """Raise ``bad_setting`` for what can be no address of a broker: nothing would ever answer there."""
    scheme, _, rest = url.partition("://")
    host, _, port = rest.rpartition(":")
    if not (scheme == "ipc" and rest) and not (scheme == "tcp" and host and port.isdecimal()):
        text = f"url is the address of a broker, not {url!r:.100}"
        raise error("bad_setting", text, "like tcp://127.0.0.1:5555 or ipc:///run/quoth/quoth")


def _check_origin(origin: str) -> None:
    try:
        found = urlsplit(origin)
        is_origin = bool(found.scheme and found.netloc) and not (found.path or found.query or found.fragment)
    except ValueError:
        is_origin = False
    if not is_origin:
        text = f"cors_origins: {origin!r:.100} is no origin"
        raise error("bad_setting", text, "like https://example.org, without a path; not *")


SCHEMA = Schema(WebConfig, WEB_PREFIX)
KEYS = SCHEMA.keys
"""Every key by its name, in the order of the groups."""


def read(
    arguments: Mapping[str, Any], environment: Mapping[str, str] = os.environ, file: Path | None = None
) -> Sourced[WebConfig]:
    """Read a configuration from all sources. Raises `RequestError` ``bad_setting`` with the origin.

    arguments: values by key; None stands for an argument that was not given.
    """
    found = sources.read(SCHEMA, arguments, environment, file)
    check_web_variables(environment, KEYS)
    found.config.check_exposure()
    return found


_HEAD = """\
# The configuration of quoth-web: every key with its default. To change one, remove the # before it.
# Arguments win over the environment (QUOTH_WEB_ and the key in capitals), which wins over this file.
# A span of time is text like "7d", "1h30m", "500ms" or a number of seconds. A size is text like "1GiB",
# "10MB" or a number of bytes.
#
#   quoth-web --check --config FILE     checks a file
#
# SIGHUP (systemctl reload quoth-web) reads the file again. A key with "(at a restart)" needs a restart.
"""


def example() -> str:
    """Return the file, with every key commented out."""
    return template.text(SCHEMA, _HEAD)


def key_problem(problem: QuothError, what: str) -> QuothError:
    """Return the error of a file that the configuration names. what: the key."""
    return error("bad_setting", f"{what}: {problem.text}", problem.hint)
