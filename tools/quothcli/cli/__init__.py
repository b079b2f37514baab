"""Options, sessions, exit statuses: the parts of the command line that commands share."""
