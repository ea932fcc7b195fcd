"""How the members of a group share the queues of a topic: which positions of the sorted list of queues one of them has.

All members have to come to the same result, be it computed by each client or by the brokers (RocketMQ:
AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle).
"""

from __future__ import annotations


def evenly(queues: int, members: int, member: int) -> range:
    """Return neighbouring queues; the first members have one more than the others if it does not come out even."""
    each, more = divmod(queues, members)
    begin = member * each + min(member, more)
    return range(begin, begin + each + (member < more))


def in_a_circle(queues: int, members: int, member: int) -> range:
    """Return every `members`-th queue, beginning with the one that has the number of the member."""
    return range(member, queues, members)
