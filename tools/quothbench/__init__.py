"""`quoth bench`: the speed of the broker, measured so that other people get the same answer.

Machines are shared and noisy. A figure that counts is a ratio of two things that were measured alternately in
one run, with the median of its pairs and their spread; everything else is a figure of this machine today. The
broker is a process of its own, clients are others, and published records are stored on the disk of `--dir`.

    commands     the list of commands              options  options of all, and what they prepare
    figures      quantiles, spreads, turns         report   conditions, then rows as they are measured
    instruments  a command and its measurements    load     the broker, its clients, what they send
    peers        the same work by other systems    spark    topics and Spark beside Parquet
    embedded     the log beside embedded stores

The command imports this package when `quoth bench` is typed.
"""
