"""Topics with consumer groups in memory, and a model of them."""
