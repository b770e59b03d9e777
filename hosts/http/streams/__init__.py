"""Updates of conversations as Server-Sent Events, which a client resumes with the id of the last one it received.

What an update is and how its data looks is defined by the engine.
"""
