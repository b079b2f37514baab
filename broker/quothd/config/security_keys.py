"""The keys of the configuration in its table ``[security]``."""

# ruff: noqa: RUF009  # a call after = makes a field

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from quothwire.config.config_key import File, Mode, described
from quothwire.errors import error

_security = partial(described, "Security", table="security", live=False)


@dataclass(frozen=True, slots=True)
class SecurityKeys:
    """The settings that say who may do what, and which files others may read. See `Config`."""

    server_key: File = _security(
        "",
        "The broker's own key file, which `quoth key new` makes; empty: clients need no key.",
        "With it each client needs a key, the traffic is encrypted, and other machines may be let in.",
    )
    clients: File = _security(
        "",
        "The file with the public keys of the clients and their rights.",
        "With a `server_key` only the clients in it get in. A reload replaces it as a whole.",
        live=True,
    )
    ipc_mode: Mode = _security(
        0o600,
        "The mode of the sockets of ipc endpoints.",
        'Only the user of the broker may connect; "0660" lets its group in, too.',
    )
    ipc_group: str = _security(
        "",
        "The group of the sockets of ipc endpoints; empty: that of the broker.",
        "The broker's user has to be a member of it.",
    )
    umask: Mode = _security(
        0o077,
        "Permissions that no file of the daemon gets. An embedded broker uses that of its program.",
        "Records are for the user of the broker alone; everything else goes through the broker.",
    )

    audit: bool = _security(
        True,
        "Record changes, deletions and what was denied in DIR/audit.log, where clients have keys.",
        "Without it no file says which client has deleted a topic; it takes 64 MiB at most.",
        live=False,
    )

    def check_modes(self) -> None:
        """Raise `RequestError` ``bad_setting`` for modes that take something from the owner.

        A umask also has to keep all other users from writing.
        """
        if not 0 <= self.ipc_mode <= 0o777 or self.ipc_mode & 0o600 != 0o600:
            text = f"ipc_mode is 0600 and what group and others may do, not {self.ipc_mode:04o}"
            raise error("bad_setting", text, "0600, 0660 for a group, 0666 for every user of the machine")
        if not 0 <= self.umask <= 0o777 or self.umask & 0o702 != 0o002:
            text = f"umask is at least 0002 and takes nothing from the owner, not {self.umask:04o}"
            raise error(
                "bad_setting", text, "0077 keeps the records from all other users, 0027 lets the group read"
            )
