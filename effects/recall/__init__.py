"""Find what belongs to a turn: the dialogue of the last minutes, older conversations, and documents of the application.

Here is what is looked for and how it is written down for the model. How texts are stored and searched is the business
of a store, which is reached through the port `Memory`.
"""
