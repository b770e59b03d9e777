"""Redaction: finds secrets in texts and puts labels in their places, before anything is stored.

Which event brings a secret, and what is done about it, belongs to the engine; nothing here is asynchronous.
"""
