"""Chat completions and the list of models, as clients of the OpenAI API expect them.

A conversation id in `metadata` makes a completion durable; without one it is stateless.
"""
