"""Jobs on Spark, ready to run: each is a module, a function of a session, and a command.

    quoth pipeline audit /var/lib/quoth                                    here, on all cores
    python -m quoth.spark.jobs.audit /var/lib/quoth --master local[4]      the same without the command
    spark-submit --master yarn .../quoth/spark/jobs/audit.py /mnt/quoth    on a cluster that has the package

A `session.Job` gets a session and returns a `session.JobSummary`. Invalid arguments are refused before there
is a session. A job is a module here, and a command in `quothcli.commands.pipeline`, which the module runs if
it is started by itself.
"""
