"""Runs jobs: starts a Spark session, waits for the broker, divides files among tasks.

A job that is started as a command has a session and a Java of its own, or the session of `spark-submit`.
A program with a session calls the job with it.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from quoth.client import DEFAULT_TIMEOUT_S, DEFAULT_URL, Client
from quoth.spark.connections import TIMEOUT_S
from quoth.spark.jobs.reasons import reason
from quoth.spark.source.ranges import named
from quothwire.errors import Disconnected, QuothError, error

MASTER = "local[*,4]"
"""The default master: this machine, all cores, four attempts of a task."""
JAVA_HINT = "Spark 4 runs on Java 17 or newer: apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
_LOGGING = Path(__file__).with_name("log4j2.properties")
BROKER_LOOK_S = 5.0
"""Seconds between two pings of the broker, and the time limit of each."""
TASK_BYTES_MIN, TASK_FILES_MIN = 64 * 2**20, 1_000
_SCHEMA = {int: "long", float: "double", bool: "boolean"}

File = TypeVar("File")


class JobSummary(NamedTuple):
    """The result of a job.

    lines: for people. content: the same as one object of JSON. good: if False, the exit status is 1.
    """

    lines: list[str]
    content: dict[str, Any]
    good: bool = True


class SparkFailed(QuothError):
    """Spark cannot be started, ``no_spark``, or has broken a job off, ``spark_failed``."""


@dataclass(frozen=True)
class Job:
    """A prepared job. work: runs in a session. kept: says, after a failure of Spark or of the broker, which
    results stay and what to do."""

    work: Callable[[SparkSession], JobSummary]
    kept: str

    def __call__(self, spark: SparkSession) -> JobSummary:
        """Run the job. Retryable errors get a hint that says which results stay."""
        try:
            return self.work(spark)
        except QuothError as problem:
            if not problem.retryable:
                raise
            raise error(problem.code, problem.text, f"{problem.hint}; {self.kept}") from problem


def looking(work: Callable[[SparkSession], JobSummary], out: str | None) -> Job:
    """Make a job that only reads, and writes its results to a folder if `out` names one."""
    return Job(work, "run it again" if out is None else f"{out} may not be whole: delete it, run it again")


class JobBroker(NamedTuple):
    """The broker of a job.

    timeout: seconds that it may take for an answer, more once the job runs. tell: called with each line for
    the user. key: the path of the key file, on the driver and all executors; None for a broker without keys.
    """

    url: str = DEFAULT_URL
    timeout: float = DEFAULT_TIMEOUT_S
    tell: Callable[[str], None] = logging.getLogger("quoth").warning
    key: str | None = None

    def client(self, timeout: float) -> Client:
        """Return a client that the caller closes; it connects at its first request."""
        return Client(self.url, None, timeout, key=self.key)

    def checked(self, topics: str | Iterable[str]) -> list[str]:
        """Return a selection of topics.

        Raises `RequestError`, `NotFound` if it matches none, `Disconnected`.
        """
        selection = [topics] if isinstance(topics, str) else list(topics)
        with self.client(self.timeout) as client:
            named(client, selection)
        return selection

    @contextmanager
    def awaited(self, look: float = BROKER_LOOK_S) -> Iterator[Client]:
        """Connect a client that waits for the broker as long as tasks do, or longer if timeout says so.

        tell is called from another thread when the broker stops answering, and when it answers again.
        """
        limit, over = max(self.timeout, TIMEOUT_S), Event()

        def watch() -> None:
            there = True
            while not over.wait(look):
                try:
                    asking.ping()
                except Disconnected as problem:
                    if problem.code == "closed":  # the job ended while the broker was asked
                        return
                    if there:
                        self.tell(f"{self.url} does not answer; it is waited for, {limit:g} s at least")
                    there = False
                except QuothError:
                    return
                else:
                    if not there:
                        self.tell(f"{self.url} answers again")
                    there = True

        with self.client(limit) as client, self.client(look) as asking:
            watcher = Thread(target=watch, name="broker", daemon=True)
            watcher.start()
            try:
                yield client
            finally:
                over.set()
                asking.close()
                watcher.join()


Settings = Iterable[tuple[str, str]]
"""Settings of Spark, each as name and value."""


def perform(what: str, job: Job | JobSummary, master: str | None = None, conf: Settings = ()) -> JobSummary:
    """Run a job in a session of its own.

    what: what is being done, in a word or two. job: or its summary, if there was nothing left for Spark.
    master, conf: see `session`. Raises `SparkFailed`, and what the job raises.
    """
    if isinstance(job, JobSummary):
        return job
    logging.getLogger().addHandler(logging.NullHandler())  # or py4j tells of Ctrl-C with a traceback
    with session(f"quoth {what}", master, conf) as spark:
        try:
            return job(spark)
        except (PySparkException, Py4JError) as problem:
            _raise_exit_of(problem)
            text = f"{what}: {reason(problem, spark)}"
            raise SparkFailed("spark_failed", text, job.kept) from problem


@contextmanager
def session(name: str, master: str | None = None, conf: Settings = ()) -> Iterator[SparkSession]:
    """Start a Spark session, which is stopped at the end.

    master: where it runs; None for what `spark-submit` says, else `MASTER`. conf: more settings, which go
    before those made here. Raises `SparkFailed` ``no_spark``.
    """
    settings: dict[str, Any] = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
    }
    builder = SparkSession.builder.appName(name)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # of spark-submit
        builder = builder.master(master) if master else builder
    else:
        _need_java()
        settings |= _settings_here(master or MASTER)
        builder = builder.master(master or MASTER)
    try:
        spark = builder.config(map=settings | dict(conf)).getOrCreate()
    except (PySparkException, Py4JError) as problem:
        _raise_exit_of(problem)
        hint = f"look at --master and --conf; {JAVA_HINT}"
        raise SparkFailed("no_spark", f"Spark did not start: {reason(problem)}", hint) from problem
    try:
        yield spark
    finally:
        try:
            spark.stop()
        except Exception:  # SIGTERM has broken off a call, and its answer was taken for that of this one
            with suppress(OSError, Py4JError):  # where Java got the signal, too, there is nothing to stop
                spark.stop()


def shares(files: Iterable[tuple[File, int]]) -> Iterator[list[File]]:
    """Yield the files of each task: at least `TASK_BYTES_MIN` or `TASK_FILES_MIN`, but for the last one.

    files: each with its bytes. A task costs Spark some hundredths of a second, a small file a ten-thousandth.
    """
    share: list[File] = []
    size = 0
    for file, of_file in files:
        share.append(file)
        size += of_file
        if size >= TASK_BYTES_MIN or len(share) >= TASK_FILES_MIN:
            yield share
            share, size = [], 0
    if share:
        yield share


def schema_of(row: type) -> str:
    """The schema in Spark of rows with these fields: numbers, text, and what is text or None."""
    kinds = {name: (get_args(kind) or (kind,))[0] for name, kind in get_type_hints(row).items()}
    return ", ".join(f"{name} {_SCHEMA.get(kind, 'string')}" for name, kind in kinds.items())


def _settings_here(master: str) -> dict[str, str]:
    """The settings of a session whose driver is this process."""
    settings = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"}
    if not master.startswith("local"):
        return settings
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    here = dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), "127.0.0.1")
    return {**settings, **here, "spark.ui.enabled": "false"}


def _raise_exit_of(problem: BaseException) -> None:
    """Raise the SystemExit or KeyboardInterrupt in the context of an error: PySpark cleans up on the way out,
    and fails if the signal has ended Java, too."""
    before = problem.__context__
    while before is not None:
        if isinstance(before, SystemExit | KeyboardInterrupt):
            raise before
        before = before.__context__


def _need_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=os.path.join(home, "bin") if home else None) is None:
        where = f"JAVA_HOME, {home}, holds none" if home else "none is in the PATH"
        raise SparkFailed("no_spark", f"Spark needs Java, and {where}", JAVA_HINT)
