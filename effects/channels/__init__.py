"""Channels: the ways in which what is said reaches the user.

Here are the port, the channels that come with turnwise, and the performer that tries each delivery until it has
arrived. What is said, and to whom, is decided elsewhere.
"""
