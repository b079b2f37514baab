"""The documents are right: their programs run unchanged, their tables agree with the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from xxhash import xxh3_64_intdigest

import quoth
from kit.broker.requests import example, required
from kit.floods.floods import FLOODS
from quothd import Broker
from quothd.config.config import Config
from quothlog import file_format
from quothwire import batch
from quothwire.errors import CODES
from quothwire.pointer import POINTER_MAX
from quothwire.protocol import binary_codec, group_settings
from quothwire.protocol.group_messages import GroupInfo
from quothwire.protocol.messages import REQUESTS, Operation, TopicInfo, TransactionInfo
from quothwire.protocol.transaction import producer_of
from quothwire.protocol.value import Range
from quothwire.settings import NAMES

ROOT = Path(__file__).parent.parent
DOCUMENTS = (
    "README.md",
    "broker/DESIGN.md",
    "broker/FORMAT.md",
    "broker/quothrules/RULES.md",
    "client/CONCEPTS.md",
    "client/GROUPS.md",
    "client/PROTOCOL.md",
    "client/TRACING.md",
    "client/c/README.md",
    "client/examples/README.md",
    "client/python/quoth/spark/README.md",
    "client/python/quoth/spark/archive/README.md",
    "systemd/OPERATIONS.md",
    "systemd/SECURITY.md",
    "tests/vectors/README.md",
    "tools/REFERENCE.md",
    "tools/quothbench/BENCHMARKS.md",
    "tools/quothweb/DASHBOARD.md",
    "tools/quothweb/GATEWAY.md",
)
PROTOCOL = (ROOT / "client" / "PROTOCOL.md").read_text()
README = (ROOT / "README.md").read_text()


def _python_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def _run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_clients_in_the_protocol_use_only_pyzmq_and_work(tmp_path: Path) -> None:
    """A client, by REQ, by DEALER or of Poe, has at most 30 lines and no code of Quoth."""
    with Broker(tmp_path, host="127.0.0.1", poe_listen="tcp://127.0.0.1:0") as broker:
        expected = (
            (broker.url, ["b'hello'", "b'world'"]),
            (broker.url, ["attempt 1 b'hello'", "[b'ok', b'2']"]),
            (broker.url, ["100 acknowledged", "100 records"]),
            (broker.poe_url, ["[b'alpha', b'beta']", "caught up True"]),
        )
        for block, (url, words) in zip(_python_blocks(PROTOCOL), expected, strict=True):
            assert len(block.splitlines()) <= 30
            assert "quoth" not in block
            printed = _run(block, url, "100")
            assert all(word in printed for word in words), printed


def test_programs_in_the_readme_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs each block, with the address of a real broker where it names one."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    client, shared, embedded, aio, _ = _python_blocks(README)
    with Broker(tmp_path / "data", host="127.0.0.1") as broker:
        assert "1002 records" in _run(client.replace("tcp://127.0.0.1:5555", broker.url))
        assert "902 left" in _run(shared.replace("tcp://127.0.0.1:5555", broker.url))
        printed = _run(aio, broker.url)
    assert "b'one'" in printed
    assert "b'two'" in printed
    printed = _run(embedded)
    assert "b'hello'" in printed
    assert "[b'21.5', b'21.6']" in printed


def test_the_program_about_traces_works(tmp_path: Path) -> None:
    """With an SDK, and with the API alone."""
    (block,) = _python_blocks((ROOT / "client" / "TRACING.md").read_text())
    sdk = "from opentelemetry.sdk.trace import TracerProvider\nimport opentelemetry.trace as api\n"
    with Broker(tmp_path, host="127.0.0.1") as broker:
        printed = _run(f"{sdk}api.set_tracer_provider(TracerProvider())\n{block}", broker.url)
        assert printed.startswith("b'milk' _Span(name=\"process orders\"")
        assert _run(block, broker.url).startswith("b'milk' NonRecordingSpan(")


def test_fixtures_in_the_readme_work(tmp_path: Path) -> None:
    """Runs README's last Python block as a file of tests."""
    plugins, test = _python_blocks(README)[4].split("\n\n\n")
    (tmp_path / "conftest.py").write_text(plugins)
    (tmp_path / "test_orders.py").write_text(test)
    code = "import os; os.environ['PYTEST_DISABLE_PLUGIN_AUTOLOAD'] = '1'; import pytest, sys\n"
    printed = _run(f"{code}sys.exit(pytest.main(sys.argv[1:]))", "-q", str(tmp_path))
    assert "1 passed" in printed


def test_protocol_has_every_operation_and_every_error_code_and_whether_it_is_retryable() -> None:
    numbered = dict(re.findall(r"^\| (\d+) `(\w+)` \|", PROTOCOL, re.MULTILINE))
    assert numbered == {str(int(one)): one.name.lower() for one in Operation}
    documented = dict(re.findall(r"^\| `(\w+)` \| (yes|no) \|", PROTOCOL, re.MULTILINE))
    assert documented == {code: "yes" if row.retryable else "no" for code, row in CODES.items()}


def _declared(operation: Operation) -> dict[str, Any]:
    """The default of every field of a request, None for one that is required."""
    names = required(operation)
    return {name: None if name in names else default for name, default in vars(example(operation)).items()}


def _documented(operation: Operation) -> dict[str, Any]:
    """The same as the table of operations in PROTOCOL.md has it."""
    rows = dict(re.findall(r"^\| ([0-9]+) `\w+` \|([^|]*)\|", PROTOCOL, re.MULTILINE))
    found = re.findall(r"`(\w+)`(?: map)?(?: = (\"\"|{}|[-0-9^]+(?: - 1| MiB)?))?", rows[str(int(operation))])
    return {name: _value(default) if default else None for name, default in found}


def _highest(kind: type[Any]) -> dict[str, str]:
    """The upper end of each number of a request, as PROTOCOL.md writes it; without pointers and ids."""
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        bounds = next((part for part in get_args(hint) if isinstance(part, Range)), None)
        if bounds is not None and bounds.high not in (POINTER_MAX, 2**64 - 1):
            found[name] = _written(bounds.high)
    return found


def _written(number: int) -> str:
    for shift in range(20, 64):
        if number in (2**shift, 2**shift - 1):
            return f"2^{shift}" if number == 2**shift else f"2^{shift} - 1"
    return f"{number:,}"


def _value(written: str) -> Any:
    if written in ('""', "{}"):
        return "" if written == '""' else {}
    if written.endswith(" MiB"):
        return int(written.removesuffix(" MiB")) * 2**20
    base, _, rest = written.partition("^")
    shift, _, less = rest.partition(" - ")
    return int(base) ** int(shift or 1) - int(less or 0)


def test_protocol_has_every_field_of_a_request_with_its_default_and_of_its_reply() -> None:
    """In the operation's row; the fields of a topic, a transaction and a group in that of one operation.

    The default of a field that is not required follows it, as in `limit` = 1000.
    """
    rows = dict(re.findall(r"^\| (\d+) (`\w+` \|.*)$", PROTOCOL, re.MULTILINE))
    drawn = {
        TopicInfo: Operation.DESCRIBE,
        TransactionInfo: Operation.TRANSACTION,
        GroupInfo: Operation.OPEN_GROUP,
    }
    for operation in Operation:
        request = REQUESTS[operation]
        row = rows[str(int(operation))] + rows[str(int(drawn.get(request.reply, operation)))]
        names = [field.name for kind in (request, request.reply) for field in fields(kind)]
        assert [name for name in names if f"`{name}`" not in row] == [], operation.name
        documented = _documented(operation)
        needed = [name for name, default in documented.items() if default is None]
        assert needed == required(operation), operation.name
        assert documented == _declared(operation), operation.name


def test_protocol_has_the_range_of_every_number_of_a_request() -> None:
    """In the table of limits, except pointers, and ids, which have all 64 bits."""
    rows = PROTOCOL[PROTOCOL.index("## Limits") :].splitlines()
    for kind in REQUESTS.values():
        for name, high in _highest(kind).items():
            limits = [row for row in rows if f"`{name}`" in row and re.search(rf"{re.escape(high)}\b", row)]
            assert limits, f"{name} of {kind.operation.name}: up to {high}"


def test_producer_ids_in_the_protocol_are_those_of_the_names() -> None:
    """In the table of Transactions."""
    rows = re.findall(r"\| `([\w~]+)`: D = ([0-9a-f]+), id ([0-9a-f]+) \|", PROTOCOL)
    assert len(rows) == 2
    for name, digest, producer in rows:
        assert xxh3_64_intdigest(name.encode()) == int(digest, 16)
        assert producer_of(name) == int(producer, 16)


def test_documents_have_the_versions_of_the_code() -> None:
    """Protocol and batches have one version."""
    assert binary_codec.VERSION == batch.VERSION
    assert f" Version {binary_codec.VERSION}, which stays as it is" in PROTOCOL
    assert re.findall(r"version \((\d+)\)", PROTOCOL) == [str(binary_codec.VERSION), str(batch.VERSION)]
    assert (
        f"\nVersion {file_format.VERSION}, which stays as it is"
        in (ROOT / "broker" / "FORMAT.md").read_text()
    )


def test_promises_name_documents_and_tests_that_exist() -> None:
    """A test is named by its function, wherever it lies. The failure suggests similar names."""
    text = (ROOT / "tests" / "PROMISES.md").read_text()
    rows = re.findall(r"^\| .+ \| `([\w./]+)` \| `(test_\w+)` \|$", text, re.MULTILINE)
    assert len(rows) == text.count("`test_") > 50
    assert _missing(name for _, name in rows) == {}
    assert [document for document, _ in rows if not (ROOT / document).exists()] == []


def test_hostile_inputs_name_tests_that_exist() -> None:
    """Each input has a row, with tests or the reason why there is none. Others name floods."""
    text = (ROOT / "tests" / "quothd" / "hostile" / "HOSTILE.md").read_text()
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \| (.*) ?\|$", text, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == [*range(1, 45)]
    assert [number for number, reaction, tests in rows if not ("`" in tests or "not app" in reaction)] == []
    assert _missing(_tests_in(text)) == {}
    named = {flood for names in re.findall(r"\(([\w, ]+)\)[ ,|]", text) for flood in names.split(", ")}
    assert named <= {*FLOODS}


def test_security_page_names_tests_that_exist() -> None:
    """Each protection has one."""
    text = (ROOT / "systemd" / "SECURITY.md").read_text()
    rows = re.findall(r"^\| (.+) \| .+ \| (`test_.*) \|$", text, re.MULTILINE)
    table = text[text.index("## What protects") : text.index("## What does not")]
    assert len(rows) == len(re.findall(r"^\| ", table, re.MULTILINE)) - 2 > 20
    assert _missing(_tests_in(text)) == {}


def _tests_in(text: str) -> list[str]:
    return re.findall(r"`(test_\w+)`", text)


def _missing(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of tests that do not exist, with similar ones."""
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    tests = {name for source in sources for name in re.findall(r"def (test_\w+)", source)}
    return {name: get_close_matches(name, tests) for name in names if name not in tests}


def test_protocol_has_every_setting_of_a_topic_and_of_a_group() -> None:
    """The table of those of a group has their defaults."""
    assert [name for name in NAMES if f"`{name}`" not in PROTOCOL] == []
    rows = re.findall(r"^\| `(\w+)` \| .* \| (\S.*) \|$", PROTOCOL, re.MULTILINE)
    documented = {name: default for name, default in rows if name in group_settings.NAMES}
    defaults = group_settings.GroupSettings().to_map()
    assert {name: json.loads(documented[name].replace(",0", "0")) for name in defaults} == defaults


def test_protocol_has_every_counter(tmp_path: Path) -> None:
    """A broker with a topic has them; others appear with their events."""
    with Broker(tmp_path, host="127.0.0.1") as broker, quoth.connect(broker.url) as client:
        client.publish("t", b"x")
        names = {**client.topic("t").counters, **client.status().counters}
    assert [name for name in names if f"`{name}`" not in PROTOCOL] == []


def test_table_of_limits_has_every_configuration_key_that_is_a_limit() -> None:
    table = PROTOCOL[PROTOCOL.index("## Limits") :]
    named = set(re.findall(r"`(\w+)`", table))
    keys = set(Config.__dataclass_fields__)
    limits = {key for key in keys if key.endswith(("_max", "_min", "_timeout", "_after", "_interval"))}
    assert limits - named == set()


def test_readme_links_every_document() -> None:
    """Its last table names all of them."""
    folders = ("broker", "client", "systemd", "tests/vectors", "tools")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.md")]
    documents = {path.relative_to(ROOT).as_posix() for path in found if "node_modules" not in path.parts}
    assert documents == set(DOCUMENTS) - {"README.md"}
    assert [path for path in sorted(documents) if f"| `{path}` |" not in README] == []


def test_the_documents_name_only_files_that_exist() -> None:
    """A path in code in one of the documents can be opened."""
    for document in DOCUMENTS:
        text = (ROOT / document).read_text()
        folders = ("", "broker", "client/python", "tools", "tests")
        for path in re.findall(r"`((?:client|broker|tools|tests|quoth[a-z]*)/[\w./-]+)`", text):
            assert any((ROOT / folder / path).exists() for folder in folders), f"{document}: {path}"
