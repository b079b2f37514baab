"""The application of the pages: NiceGUI, its guard, the login and the files of the style."""

from __future__ import annotations

from functools import partial

from fastapi import FastAPI
from nicegui import Client, core, ui
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from quothweb.dashboard.broker.configuration import configuration
from quothweb.dashboard.broker.connections import connections
from quothweb.dashboard.broker.rule_sets import rule_sets
from quothweb.dashboard.broker.transactions import transactions
from quothweb.dashboard.groups.group_list import group_list
from quothweb.dashboard.groups.group_page import group_page
from quothweb.dashboard.guard import PageGuard
from quothweb.dashboard.login import login, logout
from quothweb.dashboard.markup import ASSETS
from quothweb.dashboard.overview import overview
from quothweb.dashboard.pages import DashboardPage, register, unknown_page
from quothweb.dashboard.records.live_tail import live_tail
from quothweb.dashboard.records.record_browser import record_browser
from quothweb.dashboard.records.record_search import record_search
from quothweb.dashboard.topics.topic_list import topic_list
from quothweb.dashboard.topics.topic_page import topic_page
from quothweb.services import WebServices
from quothwire import VERSION

PAGES = (
    DashboardPage("/", "Overview", "", overview),
    DashboardPage("/topics", "Topics", "topics", topic_list),
    DashboardPage("/topic/{topic}", "Topic {topic}", "topics", topic_page),
    DashboardPage("/topic/{topic}/records", "Records of {topic}", "topics", record_browser),
    DashboardPage("/topic/{topic}/tail", "Tail of {topic}", "topics", live_tail),
    DashboardPage("/topic/{topic}/group/{group}", "Group {group} of {topic}", "groups", group_page),
    DashboardPage("/rules", "Rules", "rules", rule_sets),
    DashboardPage("/transactions", "Transactions", "transactions", transactions),
    DashboardPage("/connections", "Connections & keys", "connections", connections),
    DashboardPage("/configuration", "Configuration", "configuration", configuration),
    DashboardPage("/groups", "Groups", "groups", group_list),
    DashboardPage("/topic/{topic}/search", "Search {topic}", "topics", record_search),
    DashboardPage("/{path:path}", "No such page", "", unknown_page),  # the last one: it takes any path
)
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">'
    '<rect width="32" height="32" rx="7" fill="#0a58b0"/>'
    '<path d="M8 10h16M8 16h16M8 22h10" stroke="#fff" stroke-width="3" stroke-linecap="round"/></svg>'
)
RECONNECT_S = 10.0
"""Time in which a page may connect again and goes on as it was."""
UNSEEN_S = 20.0
"""Time after which a page is dropped that never opened its socket: a program has read its HTML alone."""
HISTORY = 100
"""Messages that are kept for a page that connects again."""


def pages_of(services: WebServices) -> tuple[FastAPI, list[BaseRoute]]:
    """Make the application of all pages, whose lifespan is to be entered, and its routes."""
    root = services.config.root_path
    for page in PAGES:
        register(page)
    ui.add_head_html(
        f'<link rel="stylesheet" href="{root}/assets/dashboard.css?{VERSION}">'
        f'<script src="{root}/assets/dashboard.js?{VERSION}"></script>',
        shared=True,
    )
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    ui.run_with(
        app,
        title="Quoth",
        favicon=ICON,
        dark=None,
        language="en-US",
        tailwind=False,
        show_welcome_message=False,
        binding_refresh_interval=None,
        reconnect_timeout=RECONNECT_S,
        message_history_length=HISTORY,
        gzip_middleware_factory=None,
    )
    core.app.timer(UNSEEN_S / 4, partial(Client.prune_instances, client_age_threshold=UNSEEN_S))
    core.app.config.socket_io_js_transports = ["websocket"]
    core.sio.eio.transports = ["websocket"]  # what polls sends no origin that could be checked
    routes: list[BaseRoute] = [
        Route("/login", login, methods=["GET", "POST"]),
        Route("/logout", logout, methods=["POST"]),
        Mount("/assets", StaticFiles(directory=ASSETS)),
        Mount("", PageGuard(app, services)),
    ]
    return app, routes
