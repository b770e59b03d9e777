"""How effects reach other agents: the port by which agents are found.

The engine implements the port over its store. Tools get it bound to the conversation that calls them.
"""
