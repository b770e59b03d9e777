"""Programs that drive the engine.

Nothing else in turnwise imports them.
"""
