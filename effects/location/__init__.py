"""Location: the port by which requests state where the user is, and what fills it."""
