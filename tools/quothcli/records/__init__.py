"""Records from what is typed and read: parsing, filters, lines."""
