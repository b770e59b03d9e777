"""The rules that an application chooses for its conversations, as plain data, with the presets and the texts.

What the machine makes of these rules is not here: see `guards` and `replies`.
"""
