"""The environment variables of Quoth: all begin with ``QUOTH_``, and an unknown one is a mistake."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from quothwire.errors import error
from quothwire.text.suggestion import nearest

PREFIX = "QUOTH_"
OTHERS = MappingProxyType(
    {
        "QUOTH_URL": "where the broker is, for the command",
        "QUOTH_CONTEXT": "the context that names the broker, for the command",
        "QUOTH_KEY_FILE": "the key file for the broker, for the command",
        "QUOTH_TOPIC": "for the command of `quoth consume --exec`: the topic of its record",
        "QUOTH_GROUP": "for such a command: the group",
        "QUOTH_POINTER": "for such a command: the pointer of its record",
        "QUOTH_ATTEMPTS": "for such a command: how often its record was handed out",
        "QUOTH_KEY": "for such a command: the key of its record, if it has one",
        "QUOTH_KEY_BASE64": "for such a command: a key with a NUL, in base64",
        "QUOTH_RECORDS": "for the command of `quoth consume --batch`: the number of its records",
        "QUOTH_NATIVE": "0 runs the functions in Python where there are compiled ones",
        "QUOTH_BUILD_NATIVE": "0 compiles nothing when Quoth is built, 1 fails if it cannot",
        "QUOTH_PYTHON": "the interpreter that the scripts in tools/ take",
        "QUOTH_SEED": "the seed of random tests",
        "QUOTH_LONG": "tests run in their long form",
        "QUOTH_SYSTEM_SUITE": "tests boot a whole system",
    }
)
"""The variables that are no keys of the daemon's configuration, with their purpose."""
HEADER_PREFIX = f"{PREFIX}HEADER_"
"""For the command of `quoth consume --exec`: the rest of the name is that of a header of its record."""
WEB_PREFIX = f"{PREFIX}WEB_"
"""For `quoth-web`, which checks the rest of the name: that of a key of its configuration."""
_OF_A_SERVICE = r"QUOTH_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_[0-9]+_(TCP|UDP|SCTP)(_\w+)?)"
_ADDRESS_OF_A_SERVICE = r"(tcp|udp|sctp)://"


def check_variables(environment: Mapping[str, str], keys: Callable[[], Iterable[str]]) -> None:
    """Raise `RequestError` ``bad_setting`` for an unknown variable with the prefix.

    keys: returns the names of the daemon's keys, each of which is a variable, too; called only if needed.
    """
    doubtful = [
        name
        for name, value in environment.items()
        if name.startswith(PREFIX) and not name.startswith((HEADER_PREFIX, WEB_PREFIX))
        if name not in OTHERS and not is_of_kubernetes(name, value)
    ]
    if not doubtful:
        return
    _check_known(doubtful, [*(variable(key) for key in keys()), *OTHERS], PREFIX)


def check_web_variables(environment: Mapping[str, str], keys: Iterable[str]) -> None:
    """Raise ``bad_setting`` for an unknown variable of `quoth-web`. keys: those of its configuration."""
    given = [name for name, value in environment.items() if not is_of_kubernetes(name, value)]
    known = [WEB_PREFIX + key.upper() for key in keys]
    _check_known([name for name in given if name.startswith(WEB_PREFIX)], known, WEB_PREFIX)


def _check_known(given: Iterable[str], known: Sequence[str], prefix: str) -> None:
    for name in given:
        if name not in known:
            near = nearest(name.removeprefix(prefix).upper(), [one.removeprefix(prefix) for one in known])
            unknown = f"names with {prefix} are Quoth's own: unset it"
            hint = f"did you mean {prefix}{near}?" if near else unknown
            raise error("bad_setting", f"{name}: there is no such variable", hint)


def is_of_kubernetes(name: str, value: str) -> bool:
    """True for a variable that Kubernetes sets for a service ``quoth`` or ``quoth-NAME``.

    One of them, ``QUOTH_PORT``, has the name of a key; its value is an address: ``tcp://10.0.0.7:5555``.
    """
    if re.fullmatch(_OF_A_SERVICE, name):
        return True
    is_port = name.startswith(PREFIX) and name.endswith("_PORT")
    return is_port and re.match(_ADDRESS_OF_A_SERVICE, value) is not None


def variable(key: str) -> str:
    """Return the variable of a key of the configuration."""
    return PREFIX + key.upper()
