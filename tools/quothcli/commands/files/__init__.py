"""Commands on the files of logs: look at, verify, repair, back up."""
