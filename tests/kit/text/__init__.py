"""The sources and texts of the project, as tests read them."""
