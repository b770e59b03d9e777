"""The Agent User Interaction Protocol (AG-UI): runs as a stream of its events.

A question to the user is an interrupt, and the answer a resume.
"""
