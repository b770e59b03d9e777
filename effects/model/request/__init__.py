"""Builds what a model is sent: the assembled context, in the form that every provider accepts.

Nothing here sends a request or knows how one is sent.
"""
