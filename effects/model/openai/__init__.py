"""OpenAI's chat completions, as servers really speak them: what is sent, what comes back, what is refused.

`client.py` asks such a server directly. `litellm/` reads and writes the same by way of litellm. `served_model.py` has
what both do alike.
"""
