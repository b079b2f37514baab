"""The style of the house as tests: import direction, sizes, names, leftovers, documentation.

A package that does not exist yet is held to nothing; one that the table does not know fails.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).resolve().parents[1]

PACKAGES = {
    "quothwire": "client/python/quothwire",
    "quoth": "client/python/quoth",
    "pyspark_quoth": "client/python/pyspark_quoth",
    "pytest_quoth": "client/python/pytest_quoth",
    "quothlog": "broker/quothlog",
    "quothd": "broker/quothd",
    "quothweb": "tools/quothweb",
    "quothcli": "tools/quothcli",
}
MAY_IMPORT = {
    "quothwire": set(),
    "quoth": {"quothwire"},
    "pyspark_quoth": {"quoth"},
    "pytest_quoth": {"quoth", "quothd", "quothwire"},
    "quothlog": {"quothwire"},
    "quothd": {"quothlog", "quothwire"},
    "quothweb": {"quoth"},
    "quothcli": set(PACKAGES),
}
SPARK = "client/python/quoth/spark/"  # reads segments without a broker, so it may import quothlog too,
JOBS = f"{SPARK}jobs/"  # and its jobs, which have to find them, quothd
ONLY_UNDER = {
    "pyspark": (SPARK, "client/python/pyspark_quoth/"),
    "pytest": ("client/python/pytest_quoth/",),
    "typer": ("tools/quothcli/",),
    "rich": ("tools/quothcli/",),
}
NEVER_UNDER = {
    "zmq": ("client/python/quothwire/", "broker/quothlog/"),
    "threading": ("client/python/quothwire/",),
}

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60  # without the docstring: documentation must not cost anything
FUNCTION_LINES_MEDIAN_MAX = 12

BANNED_MODULES = {"util", "utils", "helper", "helpers", "manager", "common", "misc", "base"}
BANNED_CLASS_ENDS = ("Manager", "Helper", "Helpers", "Util", "Utils")
BANNED_FUNCTIONS = {"process", "handle_data"}
LEFTOVERS = {  # joined here, so that this file does not hold them itself
    "unfinished work": r"\b(" + "FIX" + "ME|" + "XX" + "X|" + "TO" + r"DO)\b",
    "a path of one machine": r"(?<![\w.~-])/" + r"work/|\.\./" + "shared",
}

NO_INIT = ("broker", "client", "client/python", "tools", "tests")
TEXT_FOLDERS = ("broker", "client", "systemd", "tests", "tools", ".ci")
CACHES = {"__pycache__", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef

every_package = pytest.mark.parametrize(
    "package", [name for name in PACKAGES if (ROOT / PACKAGES[name]).is_dir()]
)


def hold(rule: str, broken: list[str]) -> None:
    """Fail with the rule and with all places that break it."""
    if broken:
        pytest.fail("\n  ".join([f"{rule}:", *broken]), pytrace=False)


def modules(folder: str) -> dict[str, ast.Module]:
    """The Python files under a folder, as path and syntax tree."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): tree(path) for path in paths}


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of one file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def functions(module: ast.Module) -> Iterator[Function]:
    """All functions of a module, at any depth."""
    return (node for node in ast.walk(module) if isinstance(node, Function))


def length(function: Function) -> int:
    """The lines of a function, without its decorators and its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is None:
        return lines
    docstring = function.body[0]
    return lines - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def imported(module: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the top-level name of each import, wherever in the module it stands."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.partition(".")[0]


def text_files() -> Iterator[tuple[str, str]]:
    """The path and the text of every file of the project that is UTF-8."""
    paths = [path for folder in TEXT_FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in sorted([*ROOT.iterdir(), *paths]):
        if path.is_file() and CACHES.isdisjoint(path.relative_to(ROOT).parts):
            try:
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def undocumented(parent: ast.AST, prefix: str = "") -> Iterator[tuple[int, str]]:
    """The line and the name of each public class, function and method that lacks a docstring."""
    for node in ast.iter_child_nodes(parent):
        if not isinstance(node, Definition):
            yield from undocumented(node, prefix)
        elif not node.name.startswith("_") and not says_it_elsewhere(node):
            if ast.get_docstring(node) is None:
                yield node.lineno, prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from undocumented(node, f"{node.name}.")


def says_it_elsewhere(node: Definition) -> bool:
    """Whether the documentation is at another definition of the same name."""
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return not names.isdisjoint({"overload", "setter", "deleter"})


def test_every_package_is_in_the_table_and_in_the_wheel() -> None:
    roots = {str(Path(folder).parent) for folder in PACKAGES.values()}
    found = {
        path.parent.relative_to(ROOT).as_posix()
        for root in roots
        for path in ROOT.glob(f"{root}/*/__init__.py")
    }
    hold("packages that this file's table lacks", sorted(found - set(PACKAGES.values())))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    hold("packages that pyproject.toml does not put into the wheel", sorted(found - set(wheel)))


def also_allowed(path: str) -> set[str]:
    """What a file may import of ours beyond what its package may."""
    return {name for name, folder in (("quothlog", SPARK), ("quothd", JOBS)) if path.startswith(folder)}


@every_package
def test_imports_run_one_way(package: str) -> None:
    broken = []
    for path, module in modules(PACKAGES[package]).items():
        allowed = MAY_IMPORT[package] | {package} | also_allowed(path)
        wrong = PACKAGES.keys() - allowed
        broken += [f"{path}:{line} imports {name}" for line, name in imported(module) if name in wrong]
    hold(f"{package} may import of ours only {sorted(MAY_IMPORT[package]) or 'itself'}", broken)


@pytest.mark.parametrize("library", ONLY_UNDER)
def test_library_is_imported_only_in_its_place(library: str) -> None:
    broken = [
        f"{path}:{line}"
        for folder in PACKAGES.values()
        for path, module in modules(folder).items()
        for line, name in imported(module)
        if name == library and not path.startswith(ONLY_UNDER[library])
    ]
    hold(f"{library} is imported only under {', '.join(ONLY_UNDER[library])}", broken)


@pytest.mark.parametrize("library", NEVER_UNDER)
def test_library_is_kept_out(library: str) -> None:
    broken = [
        f"{path}:{line}"
        for folder in NEVER_UNDER[library]
        for path, module in modules(folder).items()
        for line, name in imported(module)
        if name == library
    ]
    hold(f"{library} is never imported under {', '.join(NEVER_UNDER[library])}", broken)


def test_engine_has_no_threads_of_its_own() -> None:
    """Others may run some of it in threads of theirs: of all that belongs to threads it knows the lock.

    Only the writer, who promises a time, has somebody who keeps it.
    """
    broken = [
        f"{path}:{line}"
        for path, module in modules(PACKAGES["quothlog"]).items()
        for line, name in imported(module)
        if name in ("threading", "concurrent") and locks(module) != [line]
        if path != "broker/quothlog/writer.py"
    ]
    hold("quothlog starts no thread", broken)


def locks(module: ast.Module) -> list[int]:
    """The lines that import locks and nothing else."""
    return [
        node.lineno
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and node.module == "threading"
        if [alias.name for alias in node.names] == ["Lock"]
    ]


@every_package
def test_files_are_short(package: str) -> None:
    lines = {
        path: len((ROOT / path).read_text(encoding="utf-8").splitlines())
        for path in modules(PACKAGES[package])
    }
    broken = [f"{path} has {count}" for path, count in lines.items() if count > FILE_LINES_MAX]
    hold(f"a file has at most {FILE_LINES_MAX} lines", broken)


@every_package
def test_functions_are_short(package: str) -> None:
    lengths = {
        f"{path}:{function.lineno} {function.name}": length(function)
        for path, module in modules(PACKAGES[package]).items()
        for function in functions(module)
    }
    broken = [f"{place} has {count}" for place, count in lengths.items() if count > FUNCTION_LINES_MAX]
    hold(f"a function has at most {FUNCTION_LINES_MAX} lines", broken)
    middle = median(lengths.values() or [0])
    assert middle <= FUNCTION_LINES_MEDIAN_MAX, f"the median function of {package} has {middle} lines"


@pytest.mark.parametrize("folder", [*PACKAGES.values(), "tests"])
def test_names_say_something(folder: str) -> None:
    broken = []
    for path, module in modules(folder).items():
        if BANNED_MODULES & {part.strip("_") for part in Path(path).with_suffix("").parts}:
            broken.append(f"{path} (a file is named by the one noun in it)")
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef) and node.name.endswith(BANNED_CLASS_ENDS):
                broken.append(f"{path}:{node.lineno} class {node.name}")
            if isinstance(node, Function) and node.name in BANNED_FUNCTIONS:
                broken.append(f"{path}:{node.lineno} {node.name}()")
    hold("names that could mean anything", broken)


@pytest.mark.parametrize("leftover", LEFTOVERS)
def test_nothing_is_left_over(leftover: str) -> None:
    searched = re.compile(LEFTOVERS[leftover])
    broken = [
        f"{path}:{number} {line.strip()}"
        for path, text in text_files()
        for number, line in enumerate(text.splitlines(), 1)
        if searched.search(line)
    ]
    hold(f"{leftover} is left in", broken)


@pytest.mark.parametrize("folder", [*NO_INIT, *(f"tests/{package}" for package in PACKAGES)])
def test_folder_is_no_package(folder: str) -> None:
    """Beside the packages it would be one itself; in tests/quoth and its like it would hide the real one."""
    assert not (ROOT / folder / "__init__.py").exists(), f"{folder}/ must have no __init__.py"


@every_package
def test_everything_public_is_documented(package: str) -> None:
    broken = []
    for path, module in modules(PACKAGES[package]).items():
        if ast.get_docstring(module) is None:
            broken.append(f"{path} (the file itself)")
        broken += [f"{path}:{line} {name}" for line, name in undocumented(module)]
    hold("without a docstring", broken)
