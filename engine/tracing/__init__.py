"""Spans of OpenTelemetry for turns, model requests, tools and deliveries."""
