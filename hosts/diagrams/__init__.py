"""Drawings of the table that programs can show: in Mermaid's language, and as a map with places.

The pages of docs/ are not written here: see docs/generator.
"""
