"""Names in an archive: valid in every file system, readable for other programs, and reversible to the
topic."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from hypothesis import example, given
from hypothesis import strategies as st

from quoth.spark.archive.naming import DAY_US, file_name, is_ours, name_in, topic_folder
from quothwire.errors import QuothError
from quothwire.topic import check_topic


def is_topic(name: str) -> bool:
    try:
        return bool(check_topic(name))
    except QuothError:
        return False


names = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=200).filter(
    is_topic
)


@given(names, names)
@example("orders.*", "orders-2026.eu")
@example("a=b%2Fc:d~e", "__HIVE_DEFAULT_PARTITION__")
@example("%" * 199 + "a", "%" * 199 + "b")
@example("\N{SNOWMAN}" * 66, ":" * 200)
def test_folder_of_a_topic_has_a_unique_name_from_which_the_topic_is_decoded(one: str, other: str) -> None:
    assert (topic_folder(one) == topic_folder(other)) == (one == other)
    for topic in (one, other):
        folder = topic_folder(topic)
        assert len(folder.encode()) <= 255
        assert "/" not in folder
        assert (name_in(folder) == topic) == ("~" not in folder)


def test_only_names_that_are_too_long_or_reserved_are_changed() -> None:
    assert topic_folder("orders-2026.eu") == "topic=orders-2026.eu"
    for name in ("x" * 200, "\N{SNOWMAN}" * 66):
        assert name_in(topic_folder(name)) == name
    assert "~" in topic_folder(":" * 200)
    assert topic_folder("__HIVE_DEFAULT_PARTITION__").startswith("topic=__HIVE_DEFAULT_PARTITION__~")


def test_other_programs_find_topic_and_day_in_the_path(tmp_path: Path) -> None:
    topics = ["orders", "a=b", "50% off", "x:y*z?", "[a]{b}", "\N{SNOWMAN} 1"]
    for topic in topics:
        path = tmp_path / file_name(topic, 1, 2, 1)
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"offset": [1]}), path)
    schema = pa.schema([("topic", pa.string()), ("day", pa.string())])
    found = ds.dataset(tmp_path, partitioning=ds.partitioning(schema, flavor="hive")).to_table().to_pylist()
    assert sorted(row["topic"] for row in found) == sorted(topics)
    assert {row["day"] for row in found} == {"1970-01-01"}


def test_file_is_named_by_its_day_its_pointers_and_its_generation() -> None:
    name = file_name("orders", DAY_US * 3 + 1, DAY_US * 4 - 1, 1)
    assert name == "topic=orders/day=1970-01-04/00000259200000001-00000345599999999.parquet"
    again = file_name("orders", DAY_US * 3 + 1, DAY_US * 4 - 1, 2)
    assert again == "topic=orders/day=1970-01-04/00000259200000001-00000345599999999.2.parquet"
    assert file_name("orders", 2**56 - 2, 2**56 - 1, 1).startswith("topic=orders/day=4253-05-31/")


OURS = (
    file_name("orders", 1, 2, 1),
    file_name("a=b ~", 1, 2, 13),
    "topic=orders/day=2026-01-02/.5be1c2f0a7d94e63.parquet.tmp",
    ".5be1c2f0a7d94e63_manifest.json.tmp",
)
FOREIGN = (
    "_manifest.json",
    "_manifest.json.lock",
    "topic=orders/day=2026-01-02/mine.parquet",
    "topic=orders/day=2026-01-02/x/00000259200000001-00000345599999999.parquet",
    "topic=orders/00000259200000001-00000345599999999.parquet",
    "day=2026-01-02/topic=orders/00000259200000001-00000345599999999.parquet",
)


def test_files_that_an_archive_did_not_make_are_not_its_own() -> None:
    assert [name for name in (*OURS, *FOREIGN) if is_ours(name)] == list(OURS)
