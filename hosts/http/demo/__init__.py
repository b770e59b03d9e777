"""The demonstration of `turnwise serve --demo`: conversations in every state that visitors should see, and their tools.

They were written beforehand. What a visitor says is answered by the model that the command names.
"""
