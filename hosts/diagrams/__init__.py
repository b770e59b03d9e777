"""Drawings of the table that programs can show, in Mermaid's language.

The pages of docs/ are not written here: see docs/generator.
"""
