"""What commands share: options, sessions, exit statuses, completion."""
