"""Redaction: removes secrets from texts before anything is stored or sent."""
