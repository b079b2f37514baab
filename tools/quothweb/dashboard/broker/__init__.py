"""The pages of the broker itself: its rules, its transactions, its connections and its configuration."""
