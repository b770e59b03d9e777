"""The rehearsal model: an `Llm` of fixed rules in place of a language model.

Nothing here knows litellm or who asks.
"""
