"""Keys and rights in the installed service, set up as OPERATIONS says, for a client on another network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.deadlines import eventually
from kit.machine.commands import Ended
from kit.machine.machines import needs_machine
from kit.machine.networks import V4, neighbour_of
from kit.machine.services import CONFIG, DROP_IN, Service, key_lines

pytestmark = [pytest.mark.system, pytest.mark.timeout(900), needs_machine]
CLIENTS = "/etc/quoth/clients.toml"
URL = f"tcp://{V4[0]}:5555"
KEY = ("--key-file", "/root/alice.key")
SOCKET = "ipc:///run/quoth/quoth"


@pytest.fixture(scope="module")
def guarded(installed: Service) -> Iterator[Service]:
    """The service with a key, and the key file of alice."""
    lines, config, clients = key_lines()
    for line in lines:
        installed.run(line)
    public = installed.run("sed -n 's/^public-key = //p' /root/alice.pub").out.decode().strip()
    assert '"<public key of alice>"' in clients
    with (
        installed.changed(CLIENTS, clients.replace('"<public key of alice>"', public)),
        installed.changed(CONFIG, config),
    ):
        assert installed.restart().status == 0
        yield installed


@pytest.fixture
def served(guarded: Service) -> Service:
    """The same service, started again if a test has changed its files."""
    if guarded.is_stale:
        assert guarded.restart().status == 0
    return guarded


@pytest.fixture(scope="module")
def neighbour(guarded: Service) -> Iterator[int]:
    """Another network, which has a cable to that of the machine."""
    with neighbour_of(guarded.machine.leader) as network:
        yield network


def quoth(service: Service, network: int, *arguments: str) -> Ended:
    """Run the command as a client on another network, which has the files of the machine."""
    return service.machine.run('exec quoth "$@"', *arguments, "--url", URL, network=network)


def test_a_client_on_another_network_gets_in_with_its_key_and_does_what_it_may(
    served: Service, neighbour: int
) -> None:
    assert quoth(served, neighbour, "pub", "orders.new", "one", *KEY).status == 0
    read = quoth(served, neighbour, "read", "orders.new", "--format", "raw", *KEY)
    assert read.lines == ["one"]
    happened, _ = quoth(served, neighbour, "pub", "orders.new", "two").refused(1)
    assert "auth_failed: " in happened
    for topic in ("prices", "secret"):
        happened, _ = quoth(served, neighbour, "pub", topic, "two", *KEY).refused(1)
        assert "denied: " in happened

    def is_audited() -> bool:
        audit = served.run("cat /var/lib/quoth/audit.log").out.decode()
        return "prices" in audit and V4[1] in audit

    eventually(is_audited, "another thread has written it")
    assert served.run("stat --format=%U:%a /var/lib/quoth/audit.log /etc/quoth/broker.key").lines == [
        "quoth:600",
        "quoth:600",
    ]


def test_a_reload_without_the_client_ends_it_while_it_is_connected(served: Service, neighbour: int) -> None:
    assert quoth(served, neighbour, "pub", "orders.tail", "one", *KEY).status == 0
    words = "tail", "orders.tail", "--after", "0", "--format", "raw", *KEY, "--url", URL
    with served.machine.start('exec quoth "$@"', *words, network=neighbour) as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline() == b"one\n"
        with served.changed(CLIENTS, "# alice has left\n"):
            served.run("systemctl reload quothd")
            _, err = tail.communicate(timeout=60)
            assert tail.returncode == 1
            assert b"auth_failed: " in err
    cursor = served.cursor()
    served.run("systemctl reload quothd")
    eventually(lambda: "event=reloaded" in served.journal(cursor), "it has read the file")
    assert quoth(served, neighbour, "pub", "orders.tail", "two", *KEY).status == 0


def test_the_key_of_the_broker_is_replaced_without_an_outage_for_prepared_clients(
    served: Service, neighbour: int
) -> None:
    """By the steps of OPERATIONS. A file that the service cannot read is reported with its name."""
    served.run("quoth key new next-broker --dir /etc/quoth")
    public = served.run("sed -n 's/^public-key = //p' /etc/quoth/next-broker.pub").out.decode().strip()
    kept = served.run("cat /root/alice.key").out.decode()
    both = kept.replace("\n\n[curve]", f"\nserver-key-next = {public}\n\n[curve]")
    config = key_lines()[1].replace("broker.key", "next-broker.key")
    with served.changed("/root/alice.key", both):
        assert quoth(served, neighbour, "pub", "orders.next", "one", *KEY).status == 0
        with served.changed(CONFIG, config):
            cursor = served.cursor()
            assert served.restart().status != 0
            assert "/etc/quoth/next-broker.key" in served.journal(cursor)
            served.run("chown quoth: /etc/quoth/next-broker.key")
            assert served.restart().status == 0
            assert quoth(served, neighbour, "pub", "orders.next", "two", *KEY).status == 0
            read = quoth(served, neighbour, "read", "orders.next", "--format", "raw", *KEY)
            assert read.lines == ["one", "two"]


def test_a_socket_is_for_the_members_of_its_group_alone(served: Service) -> None:
    """The sandbox knows no other group than that of the unit."""
    config = key_lines()[1].replace("[security]\n", '[security]\nipc_mode = "0660"\n')
    served.run(
        "getent group shop || groupadd shop; id bob || useradd --create-home --groups shop bob;"
        "id eve || useradd --create-home eve;"
        'for user in bob eve; do install -m 600 -o "$user" /root/alice.key "/home/$user/"; done'
    )
    script = (
        'exec setpriv --reuid "$1" --regid "$1" --init-groups quoth pub orders.ipc x --timeout 20'
        f' --url {SOCKET} --key-file "/home/$1/alice.key"'
    )
    with (
        served.changed(DROP_IN, "[Service]\nGroup=shop\n"),
        served.changed(CONFIG, f'listen = ["{SOCKET}"]\n{config}'),
    ):
        assert served.restart().status == 0
        assert served.run("stat --format=%G:%a /run/quoth/quoth").lines == ["shop:660"]
        assert served.run(script, "bob").status == 0
        happened, advice = served.machine.run(script, "eve").refused(4)
        assert "this user may not connect to /run/quoth/quoth" in happened
        assert "ipc_group" in advice


def test_another_group_than_that_of_the_unit_is_reported_with_what_to_do(served: Service) -> None:
    served.run("getent group shop || groupadd shop; usermod --append --groups shop quoth")
    config = key_lines()[1].replace("[security]\n", '[security]\nipc_group = "shop"\n')
    with served.changed(CONFIG, f'listen = ["{SOCKET}"]\n{config}'):
        cursor = served.cursor()
        assert served.restart().status != 0
        assert "Group=shop" in served.journal(cursor)
