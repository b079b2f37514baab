"""Replaying: Parquet files back into topics, in their order, each record once.

    inputs.py    what is replayed into which topic: logs of an archive, or the rows of a table
    parquet.py   Parquet files opened and read, or told what is wrong with them
    footers.py   their columns and row groups, as their footers tell them
    cutting.py   row groups into chunks: a chunk is one transaction, a part of it one task
    tasks.py     the rows of a part become batches and are staged, in a worker
    replayer.py  the driver: chunks staged ahead, published in order, at the pace that is asked
    pace.py      when what is due

How far a replay is, the target topic says, and nobody else: the version of a chunk's transaction is the
position of its last record, which is its original pointer in an archive and the number of its row in a table.
So a run begins by asking for the newest version, and goes on behind it, however its chunks are cut, wherever
the archive lies by now, and whatever compaction has made of its files. Whatever dies: a chunk is in the topic
whole, or not at all.
"""
