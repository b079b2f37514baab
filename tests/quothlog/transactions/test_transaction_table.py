"""The transaction table, when there are many applications."""

from __future__ import annotations

from itertools import count

from kit.broker.peers import refused
from kit.clocks import DAY, START
from quothlog.transactions.table import APPLICATIONS_MAX, ONCE_MAX, StoredTransaction, TransactionTable
from quothwire.protocol.transaction import is_once, producer_of


def publish(applications: TransactionTable, name: str, first: int) -> int:
    """Let an application publish a record; returns its id."""
    application = producer_of(name)
    applications.admit(application, first)
    applications.add(application, StoredTransaction(0, first, 1, 1))
    applications.commit()
    return application


def test_names_that_are_used_once_go_before_any_other_and_are_always_taken() -> None:
    pointers = count(START)
    applications = TransactionTable()
    lasting = [publish(applications, f"app {i}", next(pointers)) for i in range(APPLICATIONS_MAX)]
    once = [publish(applications, f"~{i}", next(pointers)) for i in range(3 * ONCE_MAX)]
    assert all(map(is_once, once))
    assert len(applications) == APPLICATIONS_MAX + ONCE_MAX
    assert [applications.newest(one) for one in lasting] == [0] * APPLICATIONS_MAX
    assert [applications.newest(one) for one in once] == [-1] * 2 * ONCE_MAX + [0] * ONCE_MAX
    with refused("busy"):
        publish(applications, "one more", next(pointers))
    publish(applications, "one more", START + 8 * DAY)
    assert applications.newest(lasting[0]) == -1
    assert applications.newest(lasting[1]) == 0
    assert len(applications) == APPLICATIONS_MAX + ONCE_MAX
