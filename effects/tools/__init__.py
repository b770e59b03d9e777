"""Tools: functions of a host program that a model may call.

`tool.py` makes a function a tool, `registry.py` holds those of an engine, `run.py` runs one call.
"""
