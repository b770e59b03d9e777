"""The tools that come with turnwise.

Each is made like a tool of an application. The machine itself is not here: it carries out the acts that they return.
"""
