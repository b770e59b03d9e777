"""How the events of a conversation come in: one at a time, in the call that brings them where that is possible."""
