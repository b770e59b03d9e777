"""The bodies that the endpoints read and write, as pydantic models that OpenAPI is made from.

A body that a client sends may hold no key that its model does not have.
"""
