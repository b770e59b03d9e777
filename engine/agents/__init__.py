"""What connects the conversations of one engine as agents: the directory, their mail, and what starts them.

An effect that concerns only its own conversation does not belong here, nor does what the machine decides.
"""
