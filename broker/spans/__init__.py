"""Spans of the broker itself, with tracesEndpoint (docs/how-to/traces.md). Without it nothing here is imported."""
