"""The description in OpenAPI: complete, with examples that work, and true for any request that it allows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from kit.scale import LONG
from kit.web.servers import WebProcess
from quothweb.gateway.application import OPERATIONS

SEED, EXAMPLES, LONG_EXAMPLES = 20_260_102, 6, 300
RUN_S = 600 if LONG else 90
NOT_CHECKED = "positive_data_acceptance"
"""A schema counts characters where a name has bytes, and does not know which topics there are."""
SCHEMATHESIS = (sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()")


def test_each_operation_is_described_with_an_example_and_the_error(http: httpx.Client) -> None:
    document: dict[str, Any] = http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    found = {
        (path, method.upper()): operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert set(found) == {(one.path, one.method) for one in OPERATIONS}
    assert len({one["operationId"] for one in found.values()}) == len(OPERATIONS)
    for where, operation in found.items():
        assert operation["summary"], where
        assert operation["description"], where
        names = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        assert names == set(re.findall(r"{(\w+)}", where[0]))
        for status in ("4XX", "5XX"):
            schema = operation["responses"][status]["content"]["application/json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/Error"}
        bodies = [*operation["responses"].values(), operation.get("requestBody", {})]
        described = [body["content"] for body in bodies if "content" in body]
        assert all(any("example" in one for one in content.values()) for content in described), where


def test_the_server_does_what_the_description_says(web: WebProcess, tmp_path: Path) -> None:
    """For examples, for limits of each parameter, and for random requests, right and wrong ones."""
    options = {
        "seed": SEED,
        "max-examples": LONG_EXAMPLES if LONG else EXAMPLES,
        "phases": "examples,coverage,fuzzing",
        "exclude-checks": NOT_CHECKED,
        "suppress-health-check": "all",
        "warnings": "off",
        "request-timeout": 20,
    }
    given = [f"--{name}={value}" for name, value in options.items()]
    done = subprocess.run(
        [*SCHEMATHESIS, "run", f"{web.api}/openapi.json", "--no-color", *given],
        cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert f"Tested: {len(OPERATIONS)}" in done.stdout, done.stdout
