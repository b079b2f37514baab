"""Parts of all processes that serve: exit statuses, lines of logs, the service manager."""
