"""The built-in rules, one module for each kind of secret. They know nothing of events and conversations."""
