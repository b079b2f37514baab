"""`quoth bench spark`: topics and Spark, beside what Spark does with the same rows in Parquet.

Spark runs here, beside the broker, so the figures are the cost of a row and its division between Java, Python
and the broker. They say nothing of a network.
"""
