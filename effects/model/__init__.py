"""Language models: the port behind which they stand, and everything around a request to one.

`request/` builds requests, `litellm/` and `rehearsal/` implement the port, `performers/` carry out the effects that
need a model.
"""
