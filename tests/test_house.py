"""The rules of the sources: rooms and arrows between them, sizes, names, words, documentation.

A package that does not exist yet has to meet no rule; one that the table lacks fails.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median

import pytest

from kit.text.house import (
    ROOT,
    Function,
    circles,
    classes,
    docstrings,
    functions,
    hold,
    hold_limit,
    length,
    lines,
    matches,
    modules,
    packages_imported,
    text_files,
    undocumented,
)
from kit.text.words import NAMES, NAMES_OF_PACKAGES, QUESTIONS, TEXTS
from quothd.topics.metadata import FORMER_NAMES

PACKAGES = {
    "quothwire": "client/python/quothwire",
    "quoth": "client/python/quoth",
    "pyspark_quoth": "client/python/pyspark_quoth",
    "pytest_quoth": "tools/pytest_quoth",
    "quothlog": "broker/quothlog",
    "quothd": "broker/quothd",
    "quothweb": "tools/quothweb",
    "quothcli": "tools/quothcli",
    "quothbench": "tools/quothbench",
}
MAY_IMPORT = {
    "quothwire": set(),
    "quoth": {"quothwire"},
    "pyspark_quoth": {"quoth"},
    "pytest_quoth": {"quoth", "quothd", "quothwire"},
    "quothlog": {"quothwire"},
    "quothd": {"quothlog", "quothwire"},
    "quothweb": {"quoth"},
    "quothcli": set(PACKAGES) - {"quothbench"},  # it names the module, which is loaded when it is typed
    "quothbench": {"quoth", "quothcli", "quothd", "quothlog", "quothwire"},
}
SPARK = "client/python/quoth/spark/"  # reads segments without a broker, so it may import quothlog too
ONLY_UNDER = {
    "pyspark": (SPARK, "client/python/pyspark_quoth/"),
    "pytest": ("tools/pytest_quoth/",),
    "typer": ("tools/quothcli/", "tools/quothbench/"),
    "rich": ("tools/quothcli/",),
}
NEVER_UNDER = {
    "zmq": ("client/python/quothwire/", "broker/quothlog/"),
    "threading": ("client/python/quothwire/",),
}

SYSTEM_ROOMS = {  # where a broker and a log meet the operating system
    "quothlog": ("broker/quothlog/storage/",),
    "quothd": tuple(
        f"broker/quothd/{room}"
        for room in ("broker.py", "daemon.py", "main.py", "threads/", "config/", "service/", "datadir/")
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
LEFTOVERS = {  # joined here, so that this file does not hold them itself
    "unfinished work": r"\b(" + "FIX" + "ME|" + "XX" + "X|" + "TO" + r"DO)\b",
    "a path of one machine": r"(?<![\w.~-])/" + r"work/|\.\./" + "shared",
}

KNOW_FORMER_NAMES = {
    "CHANGELOG.md",
    "broker/quothd/topics/metadata.py",
    "client/PROTOCOL.md",
    "client/python/quoth/merging/rounds.py",
}
NO_INIT = ("broker", "client", "client/python", "tools", "tests")

every_package = pytest.mark.parametrize(
    "package", [name for name in PACKAGES if (ROOT / PACKAGES[name]).is_dir()]
)


every_folder = pytest.mark.parametrize(
    "folder", [*(folder for folder in PACKAGES.values() if (ROOT / folder).is_dir()), "tests"]
)


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


@every_package
def test_imports_run_one_way(package: str) -> None:
    wrong = Counter(
        f"{path} {name}"
        for path, module in modules(PACKAGES[package]).items()
        for _, name in packages_imported(module)
        if name in PACKAGES and name not in MAY_IMPORT[package] | {package}
        if not (name == "quothlog" and path.startswith(SPARK))
    )
    rule = f"{package} may import of ours only {sorted(MAY_IMPORT[package]) or 'itself'}"
    hold_limit(rule, wrong)


@every_package
def test_modules_do_not_import_each_other(package: str) -> None:
    """Imports for the type checker alone count too."""
    found = dict.fromkeys(circles(PACKAGES[package]), 1)
    hold_limit("modules that import each other", found)


@pytest.mark.parametrize("package", SYSTEM_ROOMS)
def test_deciding_parts_take_clock_and_system_as_arguments(package: str) -> None:
    found = Counter(
        path
        for path, module in modules(PACKAGES[package]).items()
        for name in {name for _, name in packages_imported(module)} & {"os", "time"}
        if not path.startswith(SYSTEM_ROOMS[package])
    )
    hold_limit("os and time are imported only in rooms for them", found)


@pytest.mark.parametrize("library", ONLY_UNDER)
def test_library_is_imported_only_in_its_place(library: str) -> None:
    broken = [
        f"{path}:{line}"
        for folder in PACKAGES.values()
        for path, module in modules(folder).items()
        for line, name in packages_imported(module)
        if name == library and not path.startswith(ONLY_UNDER[library])
    ]
    hold(f"{library} is imported only under {', '.join(ONLY_UNDER[library])}", broken)


@pytest.mark.parametrize("library", NEVER_UNDER)
def test_library_is_kept_out(library: str) -> None:
    broken = [
        f"{path}:{line}"
        for folder in NEVER_UNDER[library]
        for path, module in modules(folder).items()
        for line, name in packages_imported(module)
        if name == library
    ]
    hold(f"{library} is never imported under {', '.join(NEVER_UNDER[library])}", broken)


def test_engine_has_no_threads_of_its_own() -> None:
    """Others may run some of it in threads of theirs: of all that belongs to threads it knows the lock.

    Only the writer starts one, which flushes after the promised time.
    """
    broken = [
        f"{path}:{line}"
        for path, module in modules(PACKAGES["quothlog"]).items()
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


@every_folder
def test_files_are_short(folder: str) -> None:
    found = {path: lines(path) for path in modules(folder)}
    rule = f"a file has at most {FILE_LINES_MAX} lines"
    hold_limit(rule, found, FILE_LINES_MAX)


@every_folder
def test_classes_are_short(folder: str) -> None:
    found = {
        f"{path} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path, module in modules(folder).items()
        for node in classes(module)
    }
    rule = f"a class has at most {CLASS_LINES_MAX} lines"
    hold_limit(rule, found, CLASS_LINES_MAX)


@every_folder
def test_folders_hold_few_modules(folder: str) -> None:
    found = Counter(
        str(Path(path).parent)
        for path in modules(folder)
        if Path(path).name not in ("__init__.py", "__main__.py", "conftest.py")
    )
    rule = f"a folder has at most {FOLDER_MODULES_MAX} modules"
    hold_limit(rule, found, FOLDER_MODULES_MAX)


def test_public_classes_have_names_of_their_own() -> None:
    """A class of the asyncio client may have the name of its synchronous twin."""
    where: defaultdict[str, set[str]] = defaultdict(set)
    for folder in PACKAGES.values():
        for path, module in modules(folder).items():
            for node in classes(module):
                if not node.name.startswith("_"):
                    where[node.name].add(path.replace("/quoth/aio/", "/quoth/"))
    found = {name: len(paths) for name, paths in where.items()}
    hold_limit("a public class has a name of its own", found, 1)


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


@every_folder
def test_names_are_those_of_the_field(folder: str) -> None:
    names = NAMES | NAMES_OF_PACKAGES.get(Path(folder).name, {})
    found = Counter(
        f"{path} {name}"
        for path, module in modules(folder).items()
        for name in (Path(path).stem, *(node.name for node in (*classes(module), *functions(module))))
        if name.strip("_").lower().replace("_", "") in names
    )
    rule = "names with another word in their place (tests/kit/text/words.py)"
    hold_limit(rule, found)


@pytest.mark.parametrize("pattern", TEXTS)
def test_word_is_in_no_text(pattern: str) -> None:
    found = matches(re.compile(rf"(?<![A-Za-z]){pattern}(?![A-Za-z])", re.IGNORECASE))
    found.pop("tests/kit/text", None)
    hold_limit(f"say it by {TEXTS[pattern]}", found)


@pytest.mark.parametrize("name", FORMER_NAMES.values())
def test_former_name_of_a_counter_stands_only_where_clients_learn_of_it(name: str) -> None:
    broken = {path for path, text in text_files() if re.search(rf"\b{name}\b", text)}
    hold(f"{name} has another name now", sorted(broken - KNOW_FORMER_NAMES))


@every_folder
def test_docstrings_begin_with_a_verb_or_a_noun(folder: str) -> None:
    found: Counter[str] = Counter()
    for path, module in modules(folder).items():
        for _, first in docstrings(module):
            found[path] += first.endswith("?") or bool(QUESTIONS.match(first))
    rule = "a docstring begins with what a thing does or is, and is no question"
    hold_limit(rule, found)


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
