"""POP: messages received one by one, acknowledged, and visible again (docs/internals/pop.md).

in_flight.py     the messages in flight of one queue and group: columns, times, no clock and no I/O
log_records.py   the records of the log
log.py           the log: files, syncs, and what a start reads
group_queues.py  the queues of a topic as one group consumes them
looking.py       what a receive will take
deliveries.py    all queues: receives, acknowledgements, committed offsets, bounds
dead_letters.py  what was received too often
waiting.py       receives that wait for messages
"""
