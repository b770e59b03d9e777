"""The values of which states, events and effects are made: texts, files, messages, questions, rounds and turns.

A value knows its own fields and nothing of events, effects or states.
"""
