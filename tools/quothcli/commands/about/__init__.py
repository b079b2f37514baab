"""Commands about Quoth and its set-up: help, errors, contexts, completion, a demonstration."""
