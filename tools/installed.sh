# Finds Pythons, and tries a wheel that is installed for one; sourced by the scripts that build wheels, after environment.sh.

# Prints each Python from 3.11 on that is found, as "MINOR PATH", the oldest first.
pythons() {
    local python
    for python in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python \
        $(compgen -c python3. | grep -xE 'python3\.[0-9]+' | sort -u); do
        python_at "$python" || true
    done | sort -n -u -k1,1
}

# Prints one Python, in the same way. Fails if it is no CPython from 3.11 on, or has no lock for its interpreter.
python_at() {
    "$1" -c '
import sys, sysconfig
if sys.version_info < (3, 11) or sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
    sys.exit(1)
print(sys.version_info[1], sys.executable)' 2>/dev/null
}

# Makes a folder for what is built and tried, which is removed at the end, with the broker that is tried.
make_work() {
    work="$(mktemp -d)"
    broker=""
    trap '[ -z "$broker" ] || kill "$broker" 2>/dev/null || true; rm -rf "$work"' EXIT
}

# try ENVIRONMENT: serves, publishes, reads, stops and verifies with what is installed there, in a new folder, where no
# checkout is.
try() {
    local other="$1" daemon url="ipc://$work/quoth"
    local daemons=("$other/bin/quoth serve" "$other/bin/quothd")
    cd "$(mktemp -d -p "$work")"
    for daemon in "${daemons[@]}"; do
        $daemon --dir data --host "" --listen "$url" 2>daemon.log &
        broker=$!
        "$other/bin/quoth" --url "$url" ping --timeout 20s >/dev/null || stop "$(cat daemon.log)"
        published_by "$daemon" | "$other/bin/quoth" --url "$url" pub greetings >/dev/null
        "$other/bin/quoth" --url "$url" read greetings --format raw >read
        kill "$broker"
        wait "$broker" || stop "$daemon ended with $?: $(cat daemon.log)"
        broker=""
        "$other/bin/quoth" log verify data
    done
    for daemon in "${daemons[@]}"; do published_by "$daemon"; done | cmp - read
    "$other/bin/quoth" help protocol | grep '^# The wire protocol' >/dev/null
}

published_by() { echo "by $1"; seq 1000; }
