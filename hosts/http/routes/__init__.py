"""The endpoints of the HTTP host, a module for each noun.

An endpoint reads its input, calls one method of the engine or of a conversation, and writes what that returned.
"""
