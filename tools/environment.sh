# Makes .venv with the project in it, editable; sourced by the scripts beside it.
# An environment that fits stays as it is, so only the first run needs the network.
# QUOTH_PYTHON chooses the interpreter; else it is python3, or the newest of those that are named below.

root="$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$root/.venv"
unset PYTHONHOME PYTHONPATH

say() { printf '%s\n' "$*" >&2; }
stop() { say "$@"; exit 1; }

# has_programs NAME...: true if all of them are there; one call of command -v with several names asks for any.
has_programs() {
    local name
    for name; do command -v "$name" >/dev/null || return; done
}

# set_up EXTRAS: "" is enough to run Quoth, "[dev]" to work on it (and to run it).
set_up() {
    stamp="$(cksum <"$root/pyproject.toml") $root"
    if fits "$1" || fits "[dev]"; then compile_functions; return; fi
    find_python
    find_ensurepip
    say "installing into .venv ($("$python" --version)) ..."
    "$python" -m venv --clear "$venv" || stop "$python cannot make $venv"
    if [ "$1" = "[dev]" ] && command -v cc >/dev/null; then
        pip_install cython hatchling setuptools
        "$venv/bin/python" "$root/tools/build_native.py" >/dev/null 2>&1 &  # compile_functions shows what fails
        QUOTH_BUILD_NATIVE=0 pip_install -e ".$1"
        wait $! || true
    else
        pip_install -e ".$1"
    fi
    printf '%s\n' "$stamp" >"$venv/quoth$1.stamp"
    note_compiled
}

# pip_install ARGUMENT...: installs with pip, as it is called in the root.
pip_install() {
    (cd "$root" && .venv/bin/python -m pip install -qq --no-input --disable-pip-version-check --no-compile "$@") \
        || stop "the installation failed (it needs the network, or a package index of yours)"
}

# Compiles the functions in C again if their sources have changed, or were not compiled for want of a compiler.
compile_functions() {
    if ! command -v cc >/dev/null || [ "$(cat "$venv/compiled.stamp" 2>/dev/null)" = "$(c_sources)" ]; then return; fi
    say "compiling the functions in C ..."
    if "$venv/bin/python" -c 'import Cython, hatchling' 2>/dev/null; then
        "$venv/bin/python" "$root/tools/build_native.py" >/dev/null || stop "tools/build_native.py failed"
    else
        pip_install --no-deps -e .
    fi
    note_compiled
}

# Notes the sources of what is compiled, if it is.
note_compiled() {
    if "$venv/bin/python" -c 'import quothwire._native.batch' 2>/dev/null; then c_sources >"$venv/compiled.stamp"; fi
}

c_sources() { (cd "$root" && cat client/c/src/* */*/*/_native/*.p* */*/_native/*.p* tools/build_native.py 2>/dev/null | cksum); }

# True if the environment was installed completely for this pyproject.toml at this place, and works.
fits() {
    [ "$(cat "$venv/quoth$1.stamp" 2>/dev/null)" = "$stamp" ] || return
    "$venv/bin/python" -c 'import xxhash, zmq' 2>/dev/null || return
    [ -z "${QUOTH_PYTHON:-}" ] || [ "$("$QUOTH_PYTHON" -VV 2>/dev/null)" = "$("$venv/bin/python" -VV)" ]
}

find_python() {
    for python in ${QUOTH_PYTHON:+"$QUOTH_PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then return; fi
        [ -z "${QUOTH_PYTHON:-}" ] || stop "QUOTH_PYTHON=$QUOTH_PYTHON is no Python 3.11 or newer"
    done
    if [ "$(uname)" = Darwin ]; then stop "Quoth needs Python 3.11 or newer; type: brew install python3"; fi
    stop "Quoth needs Python 3.11 or newer; on Debian type: sudo apt-get install python3 python3-venv"
}

# On Debian, `python -m venv` needs a package of its own.
find_ensurepip() {
    if has_ensurepip; then return; fi
    package="$("$python" -c 'import sys; print("python{}.{}-venv".format(*sys.version_info))')"
    apt_install "$package"
    has_ensurepip || stop "$python cannot make environments; on Debian type: sudo apt-get install $package"
}

has_ensurepip() { "$python" -c 'import ensurepip' 2>/dev/null; }

# apt_install PACKAGE...: installs them on a Debian if that is allowed, one call after the other; the caller
# checks for the result.
apt_install() (
    if command -v apt-get >/dev/null && as_root true 2>/dev/null; then
        exec 9<"$root/pyproject.toml" && flock 9
        say "installing $* ..."
        as_root apt-get -qq update </dev/null >&2 || true
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq --yes --no-install-recommends install "$@" \
            </dev/null >&2 || true
    fi
)

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
