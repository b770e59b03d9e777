"""Composition: an engine's parts, and what they are made of beside its store, models, tools and channels."""
