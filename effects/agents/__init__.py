"""How effects reach other agents: the ports by which agents are found and sub-agents are followed, and the performer
that starts sub-agents.

The engine implements the ports over its conversations. Tools get the first one bound to the conversation that calls
them. Messages are carried by the engine, which knows where each agent is driven, and not here.
"""
