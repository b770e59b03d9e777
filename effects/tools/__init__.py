"""Tools: functions of an application that a model may call.

`tool.py` makes a function a tool, `registry.py` holds the tools of an engine, and `execution.py` runs one call. How a
model is asked is not known here.
"""
