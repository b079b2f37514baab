"""`quoth bench spark`: topics and Spark, beside what Spark does with the same rows in Parquet.

    plan          what is compared, known without Spark
    ways          each way to read and to write the rows
    comparison    the ways in turn, and the table of them

Spark runs here, beside the broker, so the figures are the cost of a row and its division between Java, Python
and the broker. They say nothing of a network.
"""
