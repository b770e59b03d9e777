"""The `Llm` that asks a provider through litellm.

Here is everything that knows litellm: its import, its errors, its streams and its list of models. Nothing here knows
how a request is built or who asks.
"""
