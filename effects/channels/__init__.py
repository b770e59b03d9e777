"""How what is said reaches the user: the port that a way to people fills, and who hands over."""
