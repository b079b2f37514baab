"""What commands print: records, tables, progress, questions."""
