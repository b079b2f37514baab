"""Reads the project's sources for the rules in `tests/test_house.py`."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_TEXT_FOLDERS = ("broker", "client", "systemd", "tests", "tools", ".ci")
_WORD = re.compile(r"[A-Za-z_]\w*")
_NOT_OURS = {"vendor", "node_modules", ".git", "__pycache__"}
_NOT_OURS |= {f".{tool}" for tool in ("hypothesis", "mypy_cache", "pytest_cache", "ruff_cache")}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def hold(rule: str, broken: list[str]) -> None:
    """Fail with the rule and with all places that break it."""
    if broken:
        pytest.fail("\n  ".join([f"{rule}:", *broken]), pytrace=False)


def hold_limit(rule: str, found: Mapping[str, int], limit: int = 0) -> None:
    """Fail with the places where more than `limit` is found."""
    broken = [f"{place}: {count}" for place, count in sorted(found.items()) if count > limit]
    hold(f"{rule} (at most {limit})" if limit else rule, broken)


@cache
def tree(path: Path) -> ast.Module:
    """Return the definitions, imports and docstrings of a module, with the blocks around them.

    What else a tree holds, by far the most, would cost seconds in every walk and every garbage collection.
    """
    module = ast.parse(path.read_text(encoding="utf-8"), str(path))
    _prune(module)
    return module


def _prune(block: ast.AST) -> None:
    for part in ("body", "handlers", "cases", "orelse", "finalbody"):
        if isinstance(statements := getattr(block, part, None), list):
            docstring = [one for one in statements[:1] if isinstance(one, ast.Expr)]
            statements[:] = docstring + [one for one in statements if _is_kept(one)]
            for statement in statements:
                _prune(statement)


def _is_kept(statement: ast.AST) -> bool:
    """True for an import, and for a statement with statements in it."""
    return isinstance(statement, ast.Import | ast.ImportFrom) or "body" in statement._fields


@cache
def _nodes(module: ast.Module) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(module))


@cache
def modules(folder: str) -> dict[str, ast.Module]:
    """Return the Python files under a folder, as path and syntax tree.

    Without garbage collection meanwhile, which would take as long as the parser.
    """
    paths = sorted((ROOT / folder).rglob("*.py"))
    gc.disable()
    try:
        return {path.relative_to(ROOT).as_posix(): tree(path) for path in paths}
    finally:
        gc.enable()


def lines(path: str) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


def functions(module: ast.Module) -> Iterator[Function]:
    return (node for node in _nodes(module) if isinstance(node, Function))


def classes(module: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in _nodes(module) if isinstance(node, ast.ClassDef))


def length(function: Function) -> int:
    """Return the lines of a function, without its decorators and its docstring."""
    count = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is None:
        return count
    docstring = function.body[0]
    return count - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def imported(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the full name of each imported module, at any depth."""
    for node in _nodes(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def packages_imported(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the top-level name of each import."""
    yield from dict.fromkeys((line, name.partition(".")[0]) for line, name in imported(module))


def circles(folder: str) -> list[str]:
    """Return the groups of modules that import each other, type-only imports included, as joined names."""
    trees = modules(folder)
    names = {path: _dotted(path, folder) for path in trees}
    known = {name: path for path, name in names.items() if not path.endswith("__init__.py")}
    graph = {
        path: {known[name] for _, name in imported(module) if name in known} - {path}
        for path, module in trees.items()
        if path in known.values()
    }
    reached = {path: _reachable(graph, path) for path in graph}
    groups = {frozenset(other for other in reached[path] if path in reached[other]) for path in graph}
    return sorted(" ".join(sorted(names[path] for path in group)) for group in groups if len(group) > 1)


def _dotted(path: str, folder: str) -> str:
    """Return the name by which a module is imported."""
    return ".".join(Path(path).relative_to(Path(folder).parent).with_suffix("").parts)


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Return the modules that a module imports, directly or through others."""
    found: set[str] = set()
    ahead = [start]
    while ahead:
        ahead += (fresh := graph[ahead.pop()] - found)
        found |= fresh
    return found


def text_files() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every UTF-8 file of the project."""
    paths = [path for folder in _TEXT_FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in sorted([*ROOT.iterdir(), *paths]):
        if path.is_file() and _NOT_OURS.isdisjoint(path.relative_to(ROOT).parts):
            with suppress(UnicodeDecodeError):
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def words_in(path: str) -> set[str]:
    """Return the words of a file, names among them."""
    return set(_WORD.findall((ROOT / path).read_text(encoding="utf-8")))


def bound_names(path: str) -> set[str]:
    """Return the names that a Python file binds. Parses it once more: `tree` has no variables."""
    module = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {name for node in ast.walk(module) for name in _bound(node)}


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the name that a node binds."""
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case (
            ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store())
        ):
            yield name


def snake_case(name: str) -> str:
    """Return a name in lower case, its parts joined by underscores."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def docstrings(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the first line of each docstring of a module."""
    for node in _nodes(module):
        if isinstance(node, ast.Module | Definition) and (docstring := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), docstring.splitlines()[0]


def undocumented(parent: ast.AST, prefix: str = "") -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each public class, function and method without a docstring."""
    for node in ast.iter_child_nodes(parent):
        if not isinstance(node, Definition):
            yield from undocumented(node, prefix)
        elif not node.name.startswith("_") and not _is_documented_elsewhere(node):
            if ast.get_docstring(node) is None:
                yield node.lineno, prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from undocumented(node, f"{node.name}.")


def _is_documented_elsewhere(node: Definition) -> bool:
    """True if another definition of the same name has the documentation."""
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return not names.isdisjoint({"overload", "setter", "deleter"})
