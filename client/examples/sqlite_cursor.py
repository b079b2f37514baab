"""Effects exactly once: sums up a topic in SQLite, in one transaction with the cursor.

    python sqlite_cursor.py tcp://127.0.0.1:5555 orders sums.db

A consumer that saves its cursor separately repeats, after a crash, its work since the last save. Here the
database has both the result and the cursor, and a transaction changes both or neither: after any kill and
restart every record counts once.
"""

import sqlite3
import sys

import quoth

TABLES = """
    CREATE TABLE IF NOT EXISTS sums (key TEXT PRIMARY KEY, records INTEGER NOT NULL, bytes INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS cursors (topic TEXT PRIMARY KEY, after INTEGER NOT NULL);
"""
COUNT = """
    INSERT INTO sums VALUES (?, 1, ?)
    ON CONFLICT (key) DO UPDATE SET records = records + 1, bytes = bytes + excluded.bytes
"""


def main(url: str, topic: str, path: str) -> None:
    """Follow a topic forever."""
    database = sqlite3.connect(path, isolation_level=None)
    database.executescript(TABLES)
    row = database.execute("SELECT after FROM cursors WHERE topic = ?", (topic,)).fetchone()
    with quoth.connect(url) as client, client.tail_many(topic, after=row[0] if row else 0) as tail:
        for messages in tail.portions():  # all records that are there: one transaction, one fsync
            database.execute("BEGIN IMMEDIATE")
            database.executemany(COUNT, [((one.key or b"").decode(), len(one.value)) for one in messages])
            database.execute("INSERT OR REPLACE INTO cursors VALUES (?, ?)", (topic, messages[-1].pointer))
            database.execute("COMMIT")


if __name__ == "__main__":
    main(*sys.argv[1:])
