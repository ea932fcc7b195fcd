"""The public Python client. Applications import `triomq`, `triomq.aio` and `triomq.blocking`; api.py lists the names.

    core        free of I/O: routes, requests and readers of responses, windows and offsets, settings, errors
    payloads    values of the application as bodies: serializers, Avro and its schema registry
    instance    one connected client: calls, route look-ups, heartbeats, requests of brokers
    produce     sending, transactions, request-reply, trace
    consume     push, lite pull and pull consumers
    administer  what `mqadmin` does
    facades     the same classes for asyncio and for blocking programs
    compat      the names of the old `rocketmq-client-python`
    app         the application object, and the command `triomq`

Each room imports only those above it.
"""
