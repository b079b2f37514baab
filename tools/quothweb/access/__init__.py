"""The senders of requests: tokens, sessions of people who have logged in, wrong tokens, other sites."""
