"""Rule files: TOML with the line of every key, parsed to rules."""
