"""Commands that publish, print, count and forward records."""
