"""The configuration: one frozen dataclass, and a description of each key.

`quothd --help`, `quoth serve --help` and the example file are made from it; `sources` reads its values.
"""

# ruff: noqa: RUF009  # a call after = makes a field

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from quothd.config.poe_keys import PoeKeys
from quothlog import LogOptions
from quothwire.batch import BATCH_BYTES_MAX
from quothwire.config.config_key import NUMBER_MAX, Schema, Size, Span, described
from quothwire.errors import error
from quothwire.settings import DURABILITIES, NAMES, RETENTIONS, TopicSettings
from quothwire.text.quantity import format_size
from quothwire.text.variables import PREFIX

PORT_MAX = 65_534
"""The port above it is for the announcements."""
MEMORY_LEAST = 16 * BATCH_BYTES_MAX
"""Requests and replies get a quarter of the memory each, and have to hold some of the largest batches."""
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")

_endpoint = partial(described, "Data directory and endpoints", live=False)
_topic = partial(described, "Settings of new topics; existing topics keep theirs")
_disk = partial(described, "Syncing, disk space and staged records")
_life = partial(described, "Retention, hibernation, opening and stopping")
_limit = partial(described, "Limits on what clients can make the broker hold", least=1)
_scrub = partial(described, "Background check of stored records")
_rules = partial(described, "Routing rules")
_log = partial(described, "The daemon's log on stderr; an embedded broker logs as its program configures it")


@dataclass(frozen=True, slots=True)
class Config(PoeKeys):
    """The settings of one broker: times in seconds, sizes in bytes; 0 may stand for "no limit".

    `KEYS` describes each of them. A wrong value raises `RequestError` ``bad_setting``.
    """

    dir: Path = _endpoint(
        Path("quoth-data"),
        "The data directory; created if it does not exist.",
        "A folder below the current directory: Quoth can be tried without any preparation.",
    )
    host: str = _endpoint(
        "127.0.0.1", "The address to listen on; empty: none.", "Loopback: no other machine can reach it."
    )
    port: int = _endpoint(
        5555,
        "The port; announcements use the next one; 0: any two free ports.",
        "The port that clients try by default.",
    )
    listen: tuple[str, ...] = _endpoint(
        (),
        "More endpoints, a list or separated by commas: ipc:///run/quoth/quoth.",
        "Most brokers need one endpoint only; ipc spares a local client the way through TCP.",
    )
    insecure: bool = _endpoint(
        False,
        "Allow other machines without `server_key`; every program that reaches the port may do anything.",
        "Without keys the broker authenticates no client: it opens to a network only if this is wanted.",
    )

    auto_create: bool = _topic(
        True,
        "Create a topic at its first publish.",
        "Clients need no setup; switch it off where a mistyped name must not create a topic.",
    )
    durability: str = _topic(
        "written",
        "Level that an acknowledgement promises: written or synced.",
        "Written records survive the death of the broker, synced ones a power cut, too, for one more fsync.",
        choices=DURABILITIES,
    )
    max_age: Span = _topic(
        0.0,
        "Age above which records are removed; infinity: never.",
        "Without a limit no record is removed.",
        infinity=0,
    )
    max_bytes: Size = _topic(
        0,
        "Size of a topic above which its oldest records are removed; infinity: never.",
        "Without a limit no record is removed.",
        infinity=0,
    )
    size_limit: Size = _topic(
        64 * 2**20,
        "Size at which a segment is sealed.",
        "300 segments hold 20 GB, and a scan of one takes 15 ms.",
    )
    count_limit: int = _topic(
        0, "Records at which a segment is sealed; 0: no limit.", "Most costs of a segment follow its size."
    )
    age_limit: Span = _topic(
        0.0,
        "Age at which a segment is sealed; infinity: no limit.",
        "Only retention by age needs it.",
        infinity=0,
    )
    retention: str = _topic(
        "limits",
        "Records to remove: those beyond the limits; until_acked: what all groups have finished, too.",
        "A log is read again; where groups alone read a topic, finished records may go.",
        choices=RETENTIONS,
    )

    sync_interval: Span = _disk(
        0.05,
        "Time between two fsyncs of a topic with unsynced records.",
        "A power cut takes at most the records of this time and of one fsync.",
        least=0.001,
    )
    unsynced_bytes_max: Size = _disk(
        64 * 2**20,
        "Size of unsynced records above which writers wait.",
        "It limits what a power cut can take from a topic, however slow the disk is.",
        least=BATCH_BYTES_MAX,
        infinity=NUMBER_MAX,
    )
    buffer_count_max: int = _disk(
        100_000, "Records not yet synced above which writers wait.", "The same limit for small ones.", least=1
    )
    disk_free_min: Size = _disk(
        64 * 2**20,
        "Free space on the disk below which publishes are refused.",
        "Reads, retention and trims need some of it to go on.",
        least=0,
    )

    staged_bytes_max: Size = _disk(
        16 * 2**30,
        "Size of the records that a topic may stage for transactions.",
        "Records that no transaction publishes must not fill the disk.",
        least=BATCH_BYTES_MAX,
        infinity=NUMBER_MAX,
    )
    staged_max_age: Span = _disk(
        86_400.0,
        "Time since a transaction's last batch after which its staged records are removed.",
        "After a day a dead application has left nothing; one that was stopped overnight can go on.",
        least=0.01,
    )

    check_interval: Span = _life(
        0.5,
        "Time between two runs of a topic's retention.",
        "Retention is late by no more than this.",
        least=0.01,
    )
    worker_timeout: Span = _life(
        1.0,
        "Time without a request after which a topic hibernates.",
        "A hibernating topic has no thread and no open file, costs 2 KB, and opens in a millisecond.",
        least=0.01,
    )
    recovering_after: Span = _life(
        1.0,
        "Time after which a read of a topic that is being opened is answered.",
        "The answer tells the client how far the opening is.",
        least=0,
    )
    stop_timeout: Span = _life(
        30.0,
        "Time that stopping may take.",
        "Then the daemon ends and names the topics with unsynced records.",
        least=0,
    )

    group_idle: Span = _life(
        7 * 86_400.0,
        "Time without a request after which a consumer group is reported as unused; infinity: never.",
        "Nothing removes a group by itself: the lag of an unused one grows, and `until_acked` waits for it.",
        least=0,
        infinity=0,
    )

    workers_max: int = _limit(
        256,
        "Topics that are active at once.",
        "Each has a thread and up to five descriptors. All together take half of the process's at most.",
    )
    topics_max: int = _limit(
        100_000, "Topics that the broker may have.", "Each costs 2 KB of memory and five files."
    )
    topic_requests_max: int = _limit(
        1_024,
        "Requests of one topic in progress; above it the answer is busy.",
        "A longer queue only makes every client wait longer.",
    )
    request_bytes_max: Size = _limit(
        256 * 2**20,
        "Size of all requests in progress; above it the answer is busy.",
        "It limits the memory that clients can fill.",
        least=BATCH_BYTES_MAX,
        infinity=NUMBER_MAX,
    )
    memory_max: Size = _limit(
        0,
        "Size of the daemon's memory; 0: a quarter of the machine's, or of its control group's.",
        "Replies and requests get a quarter of it each. Beyond, connections that hold most of it are ended.",
        least=0,
        live=False,
    )
    connections_max: int = _limit(
        0,
        "Connections; 0: half of the descriptors that the process may have.",
        "More are ended, those without any request first, so that topics can be opened at any time.",
        least=0,
        live=False,
    )
    connection_waits_max: int = _limit(
        10_000,
        "Requests of one connection that wait for records at once.",
        "One client must not take all of them.",
    )
    requests_max: int = _limit(
        100_000,
        "Requests of all clients in progress; above it the answer is busy.",
        "Each costs about 1 KB beside its bytes; the clients file limits those of one client.",
    )
    store_bytes_max: Size = _limit(
        0,
        "Size of all topics above which publishes are refused; infinity: no limit.",
        "`disk_free_min` stops writing in any case; this key leaves the disk to other programs, too.",
        least=0,
        infinity=0,
    )
    topic_creations_max: int = _limit(
        60_000,
        "Topics that clients may create in one minute.",
        "A thousand a second is about as many as a disk takes; the clients file limits those of one client.",
    )
    waits_max: int = _limit(100_000, "Requests that wait for records at once.", "Each costs about 0.8 KB.")
    subscriptions_max: int = _limit(
        20_000,
        "Subscriptions to announcements; above it, the connection with most of them is closed.",
        "They take up to 3 KB each, and closing a connection takes longer the more there are of all.",
    )
    connection_subscriptions_max: int = _limit(
        1_000,
        "Subscriptions to announcements of one connection, which is closed above it.",
        "An empty prefix subscribes to all topics; more connections take more single ones.",
    )
    groups_max: int = _limit(
        10_000, "Consumer groups of one topic.", "Each costs about 2 KB of memory while its topic is active."
    )
    group_pending_max: int = _limit(
        100_000,
        "Records of one consumer group that are handed out and not finished; above it, fetches wait.",
        "It limits the memory of a group: 0.3 KB for a range of such records.",
    )
    frame_bytes_max: Size = _limit(
        BATCH_BYTES_MAX + 2**20,
        "Size of the largest frame that a client may send.",
        "A batch and a margin: libzmq closes the connection before it allocates memory for more.",
        least=1_024,
        live=False,
    )

    scrub_interval: Span = _scrub(
        86_400.0,
        "Time between two checks of all sealed segments; infinity: never.",
        "After a day, copies of damaged records probably still exist.",
        least=0,
        infinity=0,
    )
    scrub_rate: Size = _scrub(
        16 * 2**20,
        "Data that these checks read per second.",
        "A tenth of a slow disk; a terabyte takes 18 hours.",
        least=1,
        infinity=NUMBER_MAX,
    )

    rules: bool = _rules(
        True,
        "Run the rule sets of the topic quoth.rules, in a process of its own.",
        "Without rule sets there is no process; `quoth rule add` adds one.",
    )

    log_level: str = _log(
        "info",
        f"Lowest level of the events in the log: {', '.join(LOG_LEVELS)}.",
        "Info covers starts, stops and removals, debug each topic that opens or hibernates.",
        choices=LOG_LEVELS,
    )
    log_format: str = _log(
        "text",
        "Format of the log: text for people, or json, one object a line.",
        "In both formats a line is one event.",
        choices=LOG_FORMATS,
    )

    def __post_init__(self) -> None:
        for key in KEYS.values():
            key.check(getattr(self, key.name))
        if not 0 <= self.port <= PORT_MAX:
            raise error("bad_setting", f"port is 0 to {PORT_MAX}, not {self.port}")
        if 0 < self.memory_max < MEMORY_LEAST:
            text = f"memory_max is 0 or at least {format_size(MEMORY_LEAST)}, not {self.memory_max}"
            raise error("bad_setting", text)
        self.check_modes()
        self.topic_settings()

    def topic_settings(self) -> TopicSettings:
        """Return the settings of a new topic: the keys with their names."""
        return TopicSettings(**{name: getattr(self, name) for name in NAMES})

    def log_options(self, settings: TopicSettings) -> LogOptions:
        """Return the options of a topic's log."""
        return LogOptions(
            size_limit=settings.size_limit,
            count_limit=settings.count_limit,
            age_limit=settings.age_limit,
            max_age=settings.max_age,
            max_bytes=settings.max_bytes,
            synced_reads=settings.durability == "synced",
            disk_free_min=self.disk_free_min,
            staged_bytes_max=self.staged_bytes_max,
            staged_max_age=self.staged_max_age,
        )

    def differing(self, other: Config) -> tuple[str, ...]:
        """Return the names of the keys whose values differ from those of another configuration."""
        return SCHEMA.differing(self, other)


SCHEMA = Schema(Config, PREFIX)
KEYS = SCHEMA.keys
"""Every key by its name, in the order of the groups."""
