"""Carry out the effects that need a model: requests, checks, summaries and compaction.

Here it is decided what is asked, of which model and how often. Nothing here knows by what an `Llm` is filled.
"""
