"""Records of the routing rules: changes of rule sets, and their states."""
