"""Cleans a stream on Spark: bad records become dead letters, duplicates are dropped, all exactly once.

    python clean_orders.py tcp://127.0.0.1:5555 orders clean dead checkpoint

Values are JSON objects with an id. Any other value goes to the topic DEAD unchanged, with its pointer and the
reason in its headers. A record with an id of the ten minutes before it is a duplicate and dropped; the others
go to CLEAN. After any kill and restart every record is in CLEAN or in DEAD once, or was a duplicate.
"""

import sys

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from quoth.spark import read_topic

WINDOW_US = 10 * 60 * 1_000_000
COLUMNS = ["key", "value", "offset"]


def main(url: str, source: str, clean: str, dead: str, checkpoint: str) -> None:
    """Follow a topic forever."""
    spark = (
        SparkSession.builder.appName("clean orders").config("spark.sql.shuffle.partitions", 4).getOrCreate()
    )

    def clean_batch(batch: DataFrame, number: int) -> None:
        batch.persist()  # because each of the three uses below would read it again
        first = batch.agg(f.min("offset")).head()[0]
        if first is not None:
            # The earlier records are in the topic: there is no state to keep, and a repeated batch gets
            # the same ones. The topic has to keep its records for the length of the window.
            before = read_topic(
                spark, source, url=url, since=max(0, first - WINDOW_US), until=first, columns=COLUMNS
            )
            good = unique(judged(before.union(batch.select(COLUMNS)))).where(f.col("offset") >= first)
            bad = judged(batch).where("reason IS NOT NULL")
            write(good, clean, number, pointer())
            write(bad, dead, number, pointer(), header("reason", f.col("reason")))
        batch.unpersist()

    def write(rows: DataFrame, topic: str, number: int, *headers: Column) -> None:
        # After a crash Spark repeats a batch with its number, and the broker does not publish a version of an
        # application twice. The numbers belong to the checkpoint, and so does the query's id: another name
        # would have to change with the checkpoint.
        application = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        rows = rows.select("key", "value", f.array(*headers).alias("headers"))
        written = rows.write.format("quoth").mode("append").option("url", url).option("topic", topic)
        written.option("txnAppId", application).option("txnVersion", number).save()

    orders = spark.readStream.format("quoth").option("url", url).option("subscribe", source)
    limited = orders.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 100_000)
    query = limited.load().writeStream.foreachBatch(clean_batch).option("checkpointLocation", checkpoint)
    query.start().awaitTermination()


def judged(rows: DataFrame) -> DataFrame:
    """Add the id, and the reason for which there is none."""
    found = f.from_json(f.col("value").cast("string"), "id STRING, _corrupt_record STRING")
    rows = rows.withColumn("found", found).withColumn("id", f.col("found.id"))
    is_none = f.col("found._corrupt_record").isNotNull()
    return rows.withColumn("reason", f.when(is_none, "no JSON object").when(f.col("id").isNull(), "no id"))


def unique(rows: DataFrame) -> DataFrame:
    """Return the good rows, without those with an id of the window before them."""
    good = rows.where("reason IS NULL")
    previous = f.lag("offset").over(Window.partitionBy("id").orderBy("offset"))  # an offset is a time
    good = good.withColumn("previous", previous)
    return good.where(f.col("previous").isNull() | (f.col("offset") - f.col("previous") > WINDOW_US))


def pointer() -> Column:
    """Return the header with the pointer of the record."""
    return header("pointer", f.col("offset").cast("string"))


def header(name: str, value: Column) -> Column:
    """Return a header for the written records."""
    return f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))


if __name__ == "__main__":
    main(*sys.argv[1:])
