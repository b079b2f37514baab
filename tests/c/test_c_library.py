"""Installation of the C library: header, symbols, pkg-config, and the tour of its README."""

from __future__ import annotations

import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from kit.broker.brokers import BrokerProcess
from kit.machine.commands import COMMAND_S
from kit.machine.cprograms import LIBRARY, build_library, flags, require_cmake, run
from quothwire.errors import CODES

HEADER = (LIBRARY / "include" / "quoth.h").read_text()
FUNCTIONS = set(re.findall(r"QUOTH_API [^;(]*?\b(quoth_\w+)\(", HEADER))
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wconversion", "-Wshadow")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prefix in which the library is installed, without sanitizers."""
    require_cmake()
    folder = tmp_path_factory.mktemp("install")
    build_library(folder / "build", "-DCMAKE_INSTALL_LIBDIR=lib", "-DQUOTH_BENCH=OFF")
    run("cmake", "--install", folder / "build", "--prefix", folder / "prefix")
    return folder / "prefix"


@pytest.mark.parametrize("linked", ["shared", "static"])
def test_the_tour_of_the_readme_runs_with_what_is_installed(
    installed: Path, broker: BrokerProcess, topic: str, tmp_path: Path, linked: str
) -> None:
    (source,) = re.findall(r"```c\n(.*?)```", (LIBRARY / "README.md").read_text(), re.DOTALL)
    (tmp_path / "tour.c").write_text(source)
    program = tmp_path / "tour"
    said = partial(flags, "quoth", path=installed / "lib" / "pkgconfig")
    libraries = said("--libs") if linked == "shared" else [str(installed / "lib" / "libquoth.a"), "-lzmq"]
    run("cc", "-std=c99", *STRICT, tmp_path / "tour.c", *said("--cflags"), *libraries, "-o", program)
    done = subprocess.run(
        [program, broker.url, topic],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        env={"LD_LIBRARY_PATH": str(installed / "lib")},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "stored 2 records",
        "one",
        "two",
        "value 0",
        "read 1002 records",
        "nothing new",
        "finished 1002 records",
    ]


def test_only_the_functions_of_the_header_are_exported(installed: Path) -> None:
    out = run("nm", "-D", "--defined-only", installed / "lib" / "libquoth.so")
    assert {line.split()[-1] for line in out.splitlines()} == FUNCTIONS


def test_every_code_of_the_protocol_has_a_number() -> None:
    numbers = dict(re.findall(r"QUOTH_([A-Z_]+) = (\d+)\b", HEADER.split("/* ---- values")[0]))
    of_library = {"ok", "other", "out_of_memory", "system"}
    assert {name.lower() for name in numbers} == set(CODES) | of_library
    assert sorted(map(int, numbers.values())) == list(range(len(numbers)))


@pytest.mark.parametrize(
    "compiler",
    [("cc", "-std=c99", "-xc"), ("cc", "-std=c11", "-xc"), ("c++", "-std=c++17", "-xc++")],
    ids=str,
)
def test_the_header_compiles_alone(compiler: tuple[str, ...], tmp_path: Path) -> None:
    require_cmake()
    source = tmp_path / "source"
    source.write_text(
        '#include "quoth.h"\n'
        "int main(void) {\n"
        "    quoth_options a = QUOTH_OPTIONS; quoth_producer_options b = QUOTH_PRODUCER_OPTIONS;\n"
        "    quoth_reader_options c = QUOTH_READER_OPTIONS; quoth_settings d = QUOTH_SETTINGS;\n"
        "    quoth_record e = QUOTH_RECORD; quoth_group_options f = QUOTH_GROUP_OPTIONS;\n"
        "    quoth_group_settings g = QUOTH_GROUP_SETTINGS;\n"
        "    if (f.fetch_records + g.backoff_count) return 1;\n"
        "    return (int)(a.timeout_ms + b.linger_ms + c.ordinal + d.durability) + (e.key.data != 0);\n"
        "}\n"
    )
    run(*compiler[:2], *STRICT, "-I", LIBRARY / "include", "-fsyntax-only", compiler[2], source)
