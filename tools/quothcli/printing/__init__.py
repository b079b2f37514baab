"""The output of commands: records, tables, progress, questions."""
