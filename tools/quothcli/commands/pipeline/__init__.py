"""`quoth pipeline`: the jobs of `quoth.spark.jobs` as commands.

A command parses what was typed and hands `running.run` a function that gets a Spark session; PySpark is
loaded there, not before.
"""
