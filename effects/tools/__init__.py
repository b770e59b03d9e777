"""Tools: functions of an application that a model may call.

`tool` makes a function a tool, `registry` holds the tools of an engine, and `performers` run their calls. How a model
is asked is not known here.
"""
