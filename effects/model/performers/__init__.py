"""Carry out the effects that need a model: requests, checks, summaries and compaction.

This package decides what is asked, which model is asked, and how often. It does not know which implementation of `Llm`
answers.
"""
