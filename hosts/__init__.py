"""Programs that drive the engine: the command `turnwise`, the HTTP host with its web page, and drawings of the machine.

Nothing else in turnwise imports them.
"""
