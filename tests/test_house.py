"""The rules of the sources: rooms and arrows between them, sizes, names, words, documentation."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

from kit.text.house import (
    ROOT,
    bound_names,
    circles,
    classes,
    docstrings,
    functions,
    hold,
    hold_limit,
    imported,
    length,
    lines,
    modules,
    packages_imported,
    snake_case,
    text_files,
    undocumented,
    words_in,
)
from kit.text.words import ALLOWED_NAMES, NAMES, NAMES_OF_PACKAGES, PARTS, QUESTIONS, SUFFIXES, TEXTS
from quothd.topics.metadata import FORMER_NAMES

PACKAGES = {
    "quothwire": "client/python/quothwire",
    "quoth": "client/python/quoth",
    "pyspark_quoth": "client/python/pyspark_quoth",
    "pytest_quoth": "tools/pytest_quoth",
    "quothlog": "broker/quothlog",
    "quothd": "broker/quothd",
    "quothrules": "broker/quothrules",
    "quothcli": "tools/quothcli",
    "quothbench": "tools/quothbench",
    "quothweb": "tools/quothweb",
}
MAY_IMPORT = {
    "quothwire": set(),
    "quoth": {"quothwire"},
    "pyspark_quoth": {"quoth"},
    "pytest_quoth": {"quoth", "quothd", "quothwire"},
    "quothlog": {"quothwire"},
    "quothd": {"quothlog", "quothwire"},
    "quothrules": {"quoth", "quothwire"},
    "quothcli": set(PACKAGES) - {"quothbench"},  # it names the module, which is loaded when it is typed
    "quothbench": {"quoth", "quothcli", "quothlog", "quothwire"},
    "quothweb": {"quoth", "quothwire"},  # a client of the broker, so that no page can hurt it
}
SPARK = "client/python/quoth/spark/"  # reads segments without a broker, so it may import quothlog too
GATEWAYS = "broker/quothd/gateways/"
"""Processes beside the broker, which are clients of it: they may import quoth, and nothing of quothd imports
them, so that no client ends up in the broker's own process."""
ONLY_UNDER = {
    "pyspark": (SPARK, "client/python/pyspark_quoth/"),
    "pytest": ("tools/pytest_quoth/",),
    "typer": ("tools/quothcli/", "tools/quothbench/"),
    "rich": ("tools/quothcli/",),
    "opentelemetry": ("client/python/quoth/tracing/",),
    **dict.fromkeys(
        ("fastapi", "nicegui", "prometheus_client", "starlette", "uvicorn"), ("tools/quothweb/",)
    ),
}
NEVER_UNDER = {
    "zmq": ("client/python/quothwire/", "broker/quothlog/"),
    "threading": ("client/python/quothwire/",),
}

SYSTEM_ROOMS = {  # where a broker and a log meet the operating system
    "quothlog": ("broker/quothlog/storage/",),
    "quothd": tuple(
        f"broker/quothd/{room}"
        for room in (
            "broker.py",
            "daemon.py",
            "main.py",
            "threads/",
            "config/",
            "service/",
            "datadir/",
            "gateways/",
        )
    ),
}

FILE_LINES_MAX = 450
CLASS_LINES_MAX = 300
FOLDER_MODULES_MAX = 12
FUNCTION_LINES_MAX = 60  # without the docstring: documentation must not cost anything
FUNCTION_LINES_MEDIAN_MAX = 12

BANNED_MODULES = {"util", "utils", "helper", "helpers", "manager", "common", "misc", "base"}
BANNED_CLASS_ENDS = ("Manager", "Helper", "Helpers", "Util", "Utils")
BANNED_FUNCTIONS = {"process", "handle_data"}
PART = re.compile(rf"(?<![a-z])({'|'.join(PARTS)})(?:{SUFFIXES})?(?![a-z])")
LEFTOVERS = (  # joined here, so that this file does not hold them itself
    r"\b(?:" + "FIX" + "ME|" + "XX" + "X|" + "TO" + r"DO)\b",
    r"(?<![\w.~-])/" + r"work/|\.\./" + "shared",
)
"""Unfinished work, and paths of one machine."""

KNOW_FORMER_NAMES = {
    "CHANGELOG.md",
    "broker/quothd/topics/metadata.py",
    "client/PROTOCOL.md",
    "client/python/quoth/merging/rounds.py",
}
NO_INIT = ("broker", "client", "client/python", "tools", "tests")

FOLDERS = (*PACKAGES.values(), "tests")


def sources(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield the path and the syntax tree of each module of some folders."""
    return ((path, module) for folder in folders for path, module in modules(folder).items())


def imports_of(name: str, *folders: str) -> list[str]:
    """Return the places that import a module or package."""
    return [
        f"{path}:{line}"
        for path, module in sources(*folders)
        for line, found in packages_imported(module)
        if found == name
    ]


# -- arrows -------------------------------------------------------------------------------------------------


def test_every_package_is_in_the_import_table_and_in_the_wheel() -> None:
    roots = {str(Path(folder).parent) for folder in PACKAGES.values()}
    found = {
        path.parent.relative_to(ROOT).as_posix()
        for root in roots
        for path in ROOT.glob(f"{root}/*/__init__.py")
    }
    assert found == set(PACKAGES.values()), "the table of this file has all packages"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    hold("packages that pyproject.toml does not put into the wheel", sorted(found - set(wheel)))


def test_imports_run_one_way() -> None:
    """Imports for the type checker alone count, too."""
    wrong = Counter(
        f"{path} {name}, of ours only {sorted(MAY_IMPORT[package]) or 'itself'}"
        for package, folder in PACKAGES.items()
        for path, module in sources(folder)
        for _, name in packages_imported(module)
        if name in PACKAGES and name not in MAY_IMPORT[package] | {package}
        if not (name == "quothlog" and path.startswith(SPARK))
        if not (name == "quoth" and path.startswith(GATEWAYS))
    )
    hold_limit("a package may import only some of ours", wrong)
    hold("modules that import each other", [one for folder in PACKAGES.values() for one in circles(folder)])


def test_a_gateway_and_the_broker_import_nothing_of_each_other() -> None:
    wrong = [
        f"{path}:{line} {name}"
        for path, module in sources(PACKAGES["quothd"])
        for line, name in imported(module)
        if name.startswith("quothd") and path.startswith(GATEWAYS) != name.startswith("quothd.gateways")
        if path.startswith(GATEWAYS) or name.startswith("quothd.gateways")
    ]
    hold("a gateway is a process beside the broker", wrong)


def test_deciding_parts_take_clock_and_system_as_arguments() -> None:
    for package, rooms in SYSTEM_ROOMS.items():
        found = imports_of("os", PACKAGES[package]) + imports_of("time", PACKAGES[package])
        hold(
            "os and time are imported only in rooms for them",
            [at for at in found if not at.startswith(rooms)],
        )


def test_libraries_are_imported_only_in_their_places() -> None:
    for library, places in ONLY_UNDER.items():
        found = imports_of(library, *PACKAGES.values())
        broken = [at for at in found if not at.startswith(places)]
        hold(f"{library} is imported only under {', '.join(places)}", broken)
    for library, places in NEVER_UNDER.items():
        hold(f"{library} is never imported under {', '.join(places)}", imports_of(library, *places))


def test_engine_has_no_threads_of_its_own() -> None:
    """Others may run some of it in threads of theirs: of all that belongs to threads it knows the lock.

    Only the writer starts one, which flushes after the promised time.
    """
    broken = [
        f"{path}:{line}"
        for path, module in sources(PACKAGES["quothlog"])
        for line, name in packages_imported(module)
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


def test_folders_beside_packages_are_no_packages() -> None:
    """Beside the packages such a folder would be one itself; in tests/quoth it would hide the real one."""
    folders = [*NO_INIT, *(f"tests/{package}" for package in PACKAGES)]
    broken = [folder for folder in folders if (ROOT / folder / "__init__.py").exists()]
    hold("a folder that must have no __init__.py", broken)


# -- sizes --------------------------------------------------------------------------------------------------


def test_files_classes_and_folders_are_small() -> None:
    found = {path: lines(path) for path, _ in sources(*FOLDERS)}
    hold_limit("a file has few lines", found, FILE_LINES_MAX)
    found = {
        f"{path} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path, module in sources(*FOLDERS)
        for node in classes(module)
    }
    hold_limit("a class has few lines", found, CLASS_LINES_MAX)
    found = Counter(
        str(Path(path).parent)
        for path, _ in sources(*FOLDERS)
        if Path(path).name not in ("__init__.py", "__main__.py", "conftest.py")
    )
    hold_limit("a folder has few modules", found, FOLDER_MODULES_MAX)


def test_functions_are_short() -> None:
    for package, folder in PACKAGES.items():
        lengths = {
            f"{path}:{function.lineno} {function.name}": length(function)
            for path, module in sources(folder)
            for function in functions(module)
        }
        hold_limit("a function has few lines", lengths, FUNCTION_LINES_MAX)
        middle = median(lengths.values() or [0])
        assert middle <= FUNCTION_LINES_MEDIAN_MAX, f"the median function of {package} has {middle} lines"


# -- names and texts ----------------------------------------------------------------------------------------


def test_public_classes_have_names_of_their_own() -> None:
    """A class of the asyncio client may have the name of its synchronous twin."""
    where: defaultdict[str, set[str]] = defaultdict(set)
    for path, module in sources(*PACKAGES.values()):
        for node in classes(module):
            if not node.name.startswith("_"):
                where[node.name].add(path.replace("/quoth/aio/", "/quoth/"))
    found = {name: len(paths) for name, paths in where.items()}
    hold_limit("a public class has a name of its own", found, 1)


def test_names_are_specific_and_of_the_glossary() -> None:
    broken = []
    for folder in FOLDERS:
        unused = NAMES | NAMES_OF_PACKAGES.get(Path(folder).name, {})
        for path, module in sources(folder):
            if BANNED_MODULES & {part.strip("_") for part in Path(path).with_suffix("").parts}:
                broken.append(f"{path} (a file is named by the one noun in it)")
            named = [node.name for node in (*classes(module), *functions(module))]
            broken += [
                f"{path} {name}"
                for name in named
                if name.endswith(BANNED_CLASS_ENDS) or name in BANNED_FUNCTIONS
            ]
            for name in (Path(path).stem, *named):
                if (plain := name.strip("_").lower().replace("_", "")) in unused:
                    broken.append(f"{path} {name}: say {unused[plain]}")
    hold("names that could mean anything, or with another word in their place", broken)


def test_names_have_no_part_with_another_word_in_its_place() -> None:
    """Neither in `set_aside` nor in `EveryHarm`. A file with such a word is parsed: it may be no name."""
    broken = []
    for folder in FOLDERS:
        for path in modules(folder):
            stem = Path(path).stem
            if found := {word for word in words_in(path) | {stem} if plain_part(word)} - {*ALLOWED_NAMES}:
                names = found & {stem, *bound_names(path)}
                broken += [f"{path} {name}: say {plain_part(name)}" for name in sorted(names)]
    hold("names with a word that has another one in its place (tests/kit/text/words.py)", broken)


@cache
def plain_part(name: str) -> str:
    """Return what stands in the place of a part of a name, "" if every part may stay."""
    found = PART.search(snake_case(name))
    return PARTS[found[1]] if found else ""


def test_texts_have_no_word_with_another_one_in_its_place_and_no_leftovers() -> None:
    words = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(TEXTS)})(?![A-Za-z])", re.IGNORECASE)
    former = re.compile(rf"\b(?:{'|'.join(FORMER_NAMES.values())})\b")
    left = re.compile("|".join(LEFTOVERS))
    broken = []
    for path, text in text_files():
        if not path.startswith("tests/kit/text/"):
            broken += [f"{path}: {word}" for word in words.findall(text)]
        if path not in KNOW_FORMER_NAMES:
            broken += [f"{path}: {name}" for name in former.findall(text)]
        broken += [f"{path}: {found[0]}" for found in left.finditer(text)]
    hold("words of other days (tests/kit/text/words.py), and what is left over", broken)


def test_everything_public_has_a_docstring_that_begins_with_a_verb_or_a_noun() -> None:
    questions = Counter(
        path
        for path, module in sources(*FOLDERS)
        for _, first in docstrings(module)
        if first.endswith("?") or QUESTIONS.match(first)
    )
    hold_limit("a docstring begins with what a thing does or is, and is no question", questions)
    broken = []
    for path, module in sources(*PACKAGES.values()):
        if ast.get_docstring(module) is None:
            broken.append(f"{path} (the file itself)")
        broken += [f"{path}:{line} {name}" for line, name in undocumented(module)]
    hold("without a docstring", broken)
