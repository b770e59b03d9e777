"""Protocols of other projects through which their clients talk to conversations: the OpenAI API, AG-UI and A2A.

A door translates a request into the engine's API, and updates into what its protocol sends. What all of them need is in
`turns`.
"""
