"""One connected client: calls, route look-ups, heartbeats, requests of brokers. Everything runs in one trio thread."""
