"""Language models: their port, and everything that a request to one needs.

`request` builds requests, `litellm/`, `openai/` and `rehearsal` implement the port, `performers/` carry out the effects
that need a model.
"""
