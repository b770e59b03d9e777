"""The users of a simulation, what they do to the conversation, and what they are told and shown.

They use the engine only as an application does. What must hold of what they are told does not belong here.
"""
