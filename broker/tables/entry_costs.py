"""About the memory that the entries of the broker's tables take, in bytes: measured, and rounded up.

An entry's own cost is added to that of its texts. A table that has a file keeps the text of each entry and, while it
writes, the text of the whole, so its encoded size counts several times.
"""

from __future__ import annotations

from typing import Final

TEXT: Final = 2
"""For each character of a name, an expression or a client id."""

SENT: Final = 4
"""For each byte of a table as it is sent (`sent_bytes`)."""

TOPIC: Final = 300
GROUP: Final = 300
OFFSETS: Final = 1100
"""The offsets of one group for one topic, beside those of each queue."""

CONSUMER_GROUP: Final = 400
CONSUMER: Final = 400
SUBSCRIPTION: Final = 200
READER: Final = 450
"""Which member committed the offset of a queue."""

PRODUCER_GROUP: Final = 250
PRODUCER: Final = 350
QUEUE_LOCK: Final = 700
REQUEST_MODE: Final = 700
FILTER: Final = 1000
FILTER_CHARACTER: Final = 40
"""A compiled filter, and each character of its expression."""

FLOW: Final = 1400
"""What statistics keep of a topic, a group, or a queue of either."""

CONSUME_QUEUE: Final = 2500
"""A queue that was written or read since the start."""
