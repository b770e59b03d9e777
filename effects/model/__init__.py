"""Language models: the door to them, what they are sent, and what can go wrong."""
