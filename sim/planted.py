"""Bugs that are put into the running program on purpose: a simulation is worth what it finds.

Each replaces one method of the real program by a wrong one, and has the shape of the plans in which it shows most; some
of the first seeds of that shape must fail (tests/test_simulation.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sim import wrong
from sim.plan import (
    BROADCAST,
    DELAYED,
    FILTERED,
    GRPC,
    GUEST,
    ORDERED,
    PLAIN,
    POPPED,
    POPPED_IN_ORDER,
    TRANSACTIONAL,
    Shape,
)
from triomq.broker.acl.access_table import AccessTable
from triomq.broker.grpc.consuming import Consuming
from triomq.broker.message_writer import MessageWriter
from triomq.broker.nameservers.link import NameServerLink
from triomq.broker.pop import log_records
from triomq.broker.pop.deliveries import Deliveries
from triomq.broker.pop.group_queues import GroupQueue
from triomq.broker.pop.in_flight import InFlight
from triomq.broker.pop.log import InFlightLog
from triomq.broker.pop.waiting import Waiting
from triomq.broker.processors.ack import AckProcessor
from triomq.broker.pulls.long_polling import LongPolling
from triomq.broker.replication.copied import CopiedPart
from triomq.broker.replication.log_follower import LogFollower
from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.queue_locks import QueueLockTable
from triomq.broker.tables.topics import TopicTable
from triomq.broker.transactions.ends import OPEN, HalfStates
from triomq.broker.transactions.transactions import TransactionLog
from triomq.client.consume.assigned import AssignedQueue
from triomq.client.consume.failed_messages import FailedMessages
from triomq.client.consume.group_consumer import GroupConsumer
from triomq.client.consume.offset_store import BrokerOffsets
from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.core.allocation import Averagely
from triomq.client.core.offsets import LocalOffsetFile
from triomq.client.core.process_queue import ProcessQueue
from triomq.namesrv.routes import RouteTable
from triomq.remoting.memory import Share
from triomq.store.delay import DelayLevels
from triomq.store.disk.files import Files
from triomq.store.fail_stop import FailStop
from triomq.store.queues.dispatch import Dispatch
from triomq.store.reading.reading import Reading
from triomq.store.upkeep.file_syncs import FileSyncs

SYNC = (("flushDiskType", "SYNC_FLUSH"),)


@dataclass(frozen=True)
class Bug:
    """`wrong(original)` returns what replaces the method `name` of `owner`. `seed` found it once: it is tried first."""

    owner: type
    name: str
    wrong: Callable[[Any], Any]
    shape: Shape
    seed: int = 0

    @contextmanager
    def planted(self) -> Iterator[None]:
        original = self.owner.__dict__[self.name]
        setattr(self.owner, self.name, self.wrong(original))
        try:
            yield
        finally:
            setattr(self.owner, self.name, original)


def _of_a_broker(*faults: str, streams: tuple[str, ...] = (PLAIN,), steps: tuple[str, ...] = ()) -> Shape:
    """One master, which syncs before it acknowledges, and these faults of it."""
    return Shape(streams, steps, faults, settings=SYNC, masters=1, only_brokers=True)


_KILLS = ("kill", "kill", "kill")
_POWER = _of_a_broker("power", "write", "power")
_CALM = ("slow",)


BUGS = {
    # The store.
    "acknowledged_before_the_sync": Bug(
        MessageWriter,
        "_take_settings",
        wrong.waits_for_nothing,
        _POWER,
    ),
    "a_sync_that_reaches_no_disk": Bug(
        FileSyncs,
        "_in_thread",
        wrong.nothing_async,
        _POWER,
    ),
    "a_queue_without_some_entries": Bug(Dispatch, "add", wrong.skips_one_in(97), Shape((PLAIN, ORDERED)), seed=10),
    "a_read_that_skips_a_message": Bug(Reading, "get_messages", wrong.reads_on, Shape((PLAIN, ORDERED))),
    "a_store_that_goes_on_after_an_error": Bug(FailStop, "fail", wrong.goes_on, _of_a_broker("error", "error")),
    "a_store_that_goes_on_after_a_failed_sync": Bug(
        FailStop,
        "broke",
        wrong.nothing,
        _of_a_broker("failing", "failing"),
    ),
    "directories_whose_names_are_not_synced": Bug(
        Files,
        "make_lasting_directories",
        wrong.without_a_sync,
        _of_a_broker("power"),
        seed=1,
    ),
    "a_log_file_without_a_name": Bug(
        FileSyncs,
        "_is_linked",
        wrong.always(True),
        _of_a_broker("unlinked"),
    ),
    # The broker.
    "a_restart_that_delays_for_too_short": Bug(
        DelayLevels, "deliver_at", wrong.plus(-500), _of_a_broker(*_KILLS, streams=(DELAYED,))
    ),
    "a_restart_that_forgets_delayed_messages": Bug(
        DelayOffsets, "load", wrong.begins_at_the_end, _of_a_broker(*_KILLS, streams=(DELAYED,))
    ),
    "offsets_stored_ahead": Bug(OffsetTable, "commit", wrong.commits_ahead, Shape((PLAIN,), steps=("leave", "visit"))),
    "a_commit_without_its_message": Bug(TransactionLog, "commit", wrong.only_the_outcome, Shape((TRANSACTIONAL,))),
    "copies_of_half_messages_without_end": Bug(
        TransactionLog,
        "_put_op",
        wrong.copies_leave_no_trace,
        _of_a_broker(*_KILLS, "kill", streams=(TRANSACTIONAL,)),
    ),
    "a_transaction_that_ends_twice": Bug(HalfStates, "state", wrong.always(OPEN), Shape((TRANSACTIONAL,))),
    "topics_made_at_once_that_nobody_is_told": Bug(
        NameServerLink,
        "_send_due",
        wrong.forgets_what_changed_meanwhile,
        Shape((PLAIN,), steps=("topics",) * 3, faults=("lag",) * 4),
        seed=9,
    ),
    "a_restart_that_forgets_topics": Bug(TopicTable, "load", wrong.nothing, _of_a_broker(*_KILLS)),
    "a_topic_that_keeps_its_permission": Bug(
        TopicTable, "update", wrong.only_new, Shape((PLAIN,), steps=("topics", "topics"), faults=_CALM)
    ),
    "a_group_that_keeps_its_settings": Bug(
        GroupTable, "delete", wrong.nothing, Shape((PLAIN,), steps=("groups", "groups"), faults=_CALM)
    ),
    "a_restart_that_forgets_locks": Bug(
        QueueLockTable,
        "load",
        wrong.nothing,
        _of_a_broker(*_KILLS, "kill", streams=(ORDERED,), steps=("visit", "visit", "visit")),
    ),
    "held_pulls_that_are_never_woken": Bug(
        LongPolling, "_matches", wrong.with_raw_codes, Shape((FILTERED,), settings=(("enableConsumeQueueExt", "true"),))
    ),
    "a_reset_that_members_ignore": Bug(
        PushConsumer,
        "reset_offsets",
        wrong.nothing_async,
        Shape((PLAIN,), steps=("reset",), faults=_CALM),
        seed=3,
    ),
    "a_slave_that_copies_nothing": Bug(
        LogFollower, "run", wrong.forever, Shape((PLAIN,), settings=SYNC, has_slave=True)
    ),
    "a_slave_that_cuts_what_was_confirmed": Bug(
        CopiedPart,
        "follows",
        wrong.as_if_its_own,
        Shape((PLAIN,), faults=("restore",), settings=SYNC, has_slave=True, masters=1),
        seed=5,
    ),
    "a_permission_that_is_taken_too_late": Bug(
        AccessTable, "update_account", wrong.does_nothing, Shape((GUEST,), steps=("revoke", "revoke"), faults=_CALM)
    ),
    # POP.
    "a_receive_without_its_record": Bug(
        InFlightLog, "append", wrong.without_records(log_records.RECEIVED), _of_a_broker(*_KILLS, streams=(POPPED,))
    ),
    "an_acknowledgement_without_its_record": Bug(
        InFlightLog, "append", wrong.without_records(log_records.DONE), _of_a_broker(*_KILLS, streams=(POPPED,))
    ),
    "an_acknowledgement_before_its_sync": Bug(
        AckProcessor,
        "_when_durable",
        wrong.at_once,
        _of_a_broker("power", "power", "power", streams=(POPPED,)),
        seed=24,
    ),
    "messages_in_flight_that_the_store_lost": Bug(
        InFlight, "forget", wrong.always(0), _of_a_broker("power", "power", "power", streams=(POPPED,)), seed=2
    ),
    "a_new_file_without_what_is_in_flight": Bug(
        Deliveries, "state", wrong.without_what_is_in_flight, _of_a_broker(*_KILLS, streams=(POPPED,)), seed=3
    ),
    "a_handle_that_outlives_a_change": Bug(InFlight, "change", wrong.keeps_the_handle, Shape((POPPED,), faults=_CALM)),
    "receives_that_are_never_woken": Bug(Waiting, "wake", wrong.nothing, Shape((POPPED,), faults=_CALM), seed=15),
    "a_second_batch_of_a_queue": Bug(GroupQueue, "is_blocked", wrong.always(False), Shape((POPPED_IN_ORDER,))),
    "a_batch_in_the_order_of_its_times": Bug(
        InFlight, "offsets", wrong.by_their_times, Shape((POPPED_IN_ORDER,)), seed=6
    ),
    "a_repetition_that_counts": Bug(
        InFlight, "change", wrong.counts_as_an_attempt, Shape((POPPED_IN_ORDER,), faults=_CALM)
    ),
    "an_acknowledgement_by_grpc_of_nothing": Bug(
        Consuming, "acknowledge", wrong.acknowledges_nothing, Shape((GRPC,), faults=_CALM)
    ),
    # Remoting and NameServer.
    "memory_that_nobody_gives_back": Bug(
        Share, "leave", wrong.leaves_nothing, Shape((PLAIN,), steps=("garbage", "garbage"))
    ),
    "a_route_with_one_broker": Bug(RouteTable, "route", wrong.one_broker_at_most, Shape((PLAIN,), masters=2)),
    "a_route_that_outlives_its_topic": Bug(
        RouteTable, "delete_topic", wrong.nothing, Shape((PLAIN,), steps=("topics", "topics"), faults=_CALM)
    ),
    # The client.
    "a_share_without_its_last_queue": Bug(Averagely, "__call__", wrong.without_the_last, Shape((PLAIN,), masters=2)),
    "a_consumer_that_begins_behind_its_offset": Bug(
        BrokerOffsets, "read", wrong.one_behind, Shape((PLAIN, ORDERED), steps=("leave", "visit"))
    ),
    "a_consumer_that_commits_what_it_only_read": Bug(
        ProcessQueue,
        "commit_offset",
        wrong.as_far_as_it_read,
        Shape((PLAIN,), steps=("leave", "leave", "visit"), faults=_KILLS),
    ),
    "a_member_that_leaves_without_its_offsets": Bug(
        GroupConsumer,
        "_leave",
        wrong.stores_nothing_at_the_end,
        Shape((PLAIN,), steps=("leave", "leave", "visit", "visit"), faults=_CALM),
        seed=2,
    ),
    "an_ordered_queue_that_stays_paused": Bug(
        AssignedQueue,
        "stay",
        wrong.nothing,
        Shape((ORDERED,), steps=("visit", "visit", "visit", "visit"), faults=_CALM),
        seed=1,
    ),
    "a_broadcast_that_misses_one": Bug(
        LocalOffsetFile,
        "load",
        wrong.begins_in_the_past,
        Shape((BROADCAST,), faults=(*_KILLS, "stop")),
        seed=2,
    ),
    "a_failure_that_counts_as_success": Bug(
        FailedMessages, "deliver_again", wrong.says_it_did, Shape((PLAIN, DELAYED), faults=_CALM)
    ),
    "a_retry_topic_that_nobody_reads": Bug(
        PushConsumer, "topics", wrong.without_retries, Shape((PLAIN, DELAYED), faults=_CALM)
    ),
}
