"""What a handle on a conversation is made of: the requests that it makes, and what it has last seen."""
