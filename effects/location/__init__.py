"""Where the user is, as requests state it: the port for it, the lookup of an IP address, and what keeps the answer."""
