"""`quoth bench spark`: topics and Spark, measured beside what Spark does with the same rows by itself.

    rows        the same rows as a topic and as Parquet       ways         each way to read and to write them
    tuples      a source that makes rows one by one           comparison   the ways in turn, the table of them
    figure      what can be asked for

Spark runs here, beside the broker, so what is measured is what a row costs and how that divides between Java,
Python and the broker. It says nothing of a network.
"""
