"""The rehearsal model: an `Llm` of fixed rules in place of a language model.

Nothing here knows litellm or who asks.
"""

REHEARSAL = "rehearsal"
"""The name under which an engine, a policy and the log know the model."""
