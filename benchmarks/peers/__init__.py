"""The standard turn in turnwise, in the libraries that it is compared with, and in SQLite alone."""
