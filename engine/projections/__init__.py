"""What follows from the log of a conversation, held in memory for callers, watchers and performers."""
