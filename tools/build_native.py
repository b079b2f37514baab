"""Compiles the functions of `quothwire.native`, for wheels and for the source tree.

pip calls it through hatchling when it builds or installs Quoth, and it compiles what has changed since the
last time. Without a compiler Quoth is installed as pure Python, and says so. `python tools/build_native.py`
compiles everything in the source tree.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent
C_SOURCES = ROOT / "client/c/src"
PACKAGES = {
    "quothwire._native": ROOT / "client/python/quothwire/_native",
    "quothlog._native": ROOT / "broker/quothlog/_native",
    "quothd._native": ROOT / "broker/quothd/_native",
}
"""The packages of compiled modules. Each Cython file in one of them becomes a module."""
LIBQUOTH = {
    "quothwire._native.batch": ["batch.c"],
    "quothwire._native.codec": ["codec.c", "shapes.c", "msgpack.c", "batch.c"],
    "quothwire._native.record": ["batch.c"],
}
"""The sources in C that a module is compiled with."""
SWITCH = "QUOTH_BUILD_NATIVE"
"""The variable that says how a build goes without compiled modules: 0 makes none, 1 fails if it cannot."""
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "binding": False,
    "auto_pickle": False,
}
FLAGS = ["-O3", "-g0", "-fvisibility=hidden", "-Wno-unreachable-code"]


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds the compiled modules to a wheel; an editable one finds them in the source tree."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile all modules, or leave the wheel pure."""
        wanted = os.environ.get(SWITCH, "")
        if self.target_name != "wheel" or wanted == "0":
            return
        try:
            made = build(only_changed=True)
        except Exception as problem:
            if wanted == "1":
                raise
            self.app.display_warning(f"Quoth becomes pure Python, which is slower: {problem}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        if version != "editable":
            build_data["force_include"] |= {str(path): path_in_wheel(path) for path in made}


def path_in_wheel(path: Path) -> str:
    """Return the place of a compiled module in a wheel."""
    package = next(name for name, folder in PACKAGES.items() if folder == path.parent)
    return f"{package.replace('.', '/')}/{path.name}"


def build(*, only_changed: bool = False) -> list[Path]:
    """Compile all modules, or those older than their sources, and return the paths of all.

    Raises what the compiler does.
    """
    from Cython.Build import cythonize
    from setuptools import Extension

    extensions = [
        Extension(
            f"{package}.{source.stem}",
            [str(source), *(str(C_SOURCES / name) for name in LIBQUOTH.get(f"{package}.{source.stem}", ()))],
            depends=[
                str(path) for path in [*C_SOURCES.glob("*.h"), *folder.glob("*.h"), *folder.glob("*.pxd")]
            ],
            extra_compile_args=[
                *FLAGS,
                f"-iquote{C_SOURCES}",
                f"-iquote{folder}",
            ],  # <link.h> is the system's
        )
        for package, folder in PACKAGES.items()
        for source in sorted(folder.glob("*.pyx"))
    ]
    wanted = [one for one in extensions if not (only_changed and is_current(one))]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as threads:
        modules = cythonize(
            wanted,
            build_dir=scratch,
            include_path=[str(folder.parents[len(name.split(".")) - 1]) for name, folder in PACKAGES.items()],
            compiler_directives=DIRECTIVES,
            quiet=True,
        )
        compiled = list(threads.map(partial(_compile, scratch), modules))  # all or none are installed
        for path, module in zip(compiled, modules, strict=True):
            _install(path, _place_of(module.name))
    return [_place_of(module.name) for module in extensions]


def _place_of(name: str) -> Path:
    """Return the path of a compiled module for this Python."""
    package, _, module = name.rpartition(".")
    return PACKAGES[package] / f"{module}{sysconfig.get_config_var('EXT_SUFFIX')}"


def is_current(module: Any) -> bool:
    """Return True if a module was compiled after the last change of its sources."""
    place = _place_of(module.name)
    sources = (__file__, *module.sources, *module.depends)
    return place.exists() and place.stat().st_mtime > max(os.stat(path).st_mtime for path in sources)


def _compile(scratch: str, module: Any) -> Path:
    """Compile a module, with object files of its own: two modules may have a source in common."""
    from setuptools import Distribution

    command = Distribution({"ext_modules": [module]}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = scratch, os.path.join(scratch, module.name)
    command.ensure_finalized()
    command.run()
    return Path(command.get_ext_fullpath(module.name))


def _install(built: Path, place: Path) -> None:
    """Move a compiled module beside its source, in one step: a process may be using the old one."""
    os.replace(_near(built, place), place)


def _near(built: Path, place: Path) -> Path:
    """Copy a file to the folder of its later place, under another name."""
    near = place.with_suffix(".new")
    near.write_bytes(built.read_bytes())
    near.chmod(0o755)
    return near


if __name__ == "__main__":
    for made in build():
        print(made.relative_to(ROOT))
    sys.exit(0)
