"""Jobs on Spark: each is a module, a function of a session, and a command.

    quoth pipeline audit /var/lib/quoth                                          here, on all cores
    spark-submit --master yarn .../quothcli/main.py pipeline audit /mnt/quoth    on a cluster

A `session.Job` gets a session and returns a `session.JobSummary`. Invalid arguments are refused before there
is a session. The commands are in `quothcli.commands.pipeline`.
"""
