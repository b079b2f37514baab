"""Replays Parquet files into topics, in their order, each record once.

    inputs.py      logs of an archive or rows of a table, each with its target topic
    parquet.py     opens Parquet files; reads footers, row groups and columns
    chunking.py    divides row groups into chunks: a chunk is one transaction, a part of it one task
    tasks.py       converts the rows of a part to batches and stages them, in a worker
    replayer.py    the driver: stages chunks ahead and publishes them in order, each when it is due

Only the target topic knows how far a replay is: the version of a chunk's transaction is the position of its
last record, which is the original pointer in an archive and the number of the row in a table. So a run reads
the newest version and continues behind it, also with other sizes of chunks, and also if the archive was moved
or compacted. After any crash the topic has a chunk whole, or not at all.
"""
