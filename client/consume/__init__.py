"""Consuming: shares of queues, pull loops, windows of messages, listeners, offsets."""
