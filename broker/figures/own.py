"""The families `triomq_*` of a broker: what an operator wants to know about this implementation.

Most are read from the parts during a scrape. `Observed` has what is counted only while the port is open, for each
commit and each sync.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import trio

from triomq.broker.figures.parts import Parts
from triomq.broker.figures.snapshot import Snapshot
from triomq.daemon.lines import LOST_LINES, lost_lines
from triomq.monitoring.exposition import Family, Sample, Samples, counter, gauge, histogram, labels, one
from triomq.monitoring.histogram import Histogram
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.remoting.admission import LIMITS, STRANGER
from triomq.remoting.processor_table import ProcessorTable

_QUEUE_ENTRY_BYTES = 20
REFUSALS = ("no_access_key", "unknown_access_key", "bad_signature", "no_permission")
NO_ERRORS = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
    ResponseCode.QUERY_NOT_FOUND,
)
"""Responses other than SUCCESS that belong to the usual life of a client."""
SYNCED = ("commitlog", "consumequeue")


class Observed:
    """Durations of commits and syncs, from its construction on."""

    def __init__(self, parts: Parts) -> None:
        self.commits = Histogram()
        self.syncs = {what: Histogram() for what in SYNCED}
        self.failed_syncs = Counter[str]()
        tables = parts.serving.tables
        tables.store_metrics.observe_commits(self.commits.observe)
        tables.latencies.observe_syncs(self._synced)

    def _synced(self, what: str, seconds: float, has_failed: bool) -> None:
        self.syncs[what].observe(seconds)
        if has_failed:
            self.failed_syncs[what] += 1


class OwnFigures:
    def __init__(self, parts: Parts, observed: Observed, tables_of_ports: list[ProcessorTable]) -> None:
        self._parts = parts
        self._observed = observed
        self._processor_tables = tables_of_ports

    def families(self, snapshot: Snapshot) -> Iterator[Family]:
        """Yield all families; the snapshot is computed already."""
        yield from self._store()
        yield from self._waits()
        yield from self._requests()
        yield from self._replication()
        yield from self._delays()
        yield from self._groups(snapshot)
        yield from self._registration()
        yield from self._tables()

    # -- the store -----------------------------------------------------------------------------------------------------

    def _store(self) -> Iterator[Family]:
        observed, store = self._observed, self._parts.serving.store
        meaning = "Writing what a turn appended, and its queue entries."
        yield histogram("triomq_commit_duration_seconds", meaning, one(observed.commits))
        yield histogram(
            "triomq_fsync_duration_seconds",
            "Syncs of the log and of the consume queues.",
            [(labels(file=what), times) for what, times in observed.syncs.items()],
        )
        yield counter(
            "triomq_fsync_errors_total",
            "Syncs that failed.",
            [(labels(file=what), observed.failed_syncs[what]) for what in SYNCED],
        )
        replicated = self._parts.serving.replication.log_server.replicated
        marks = {"committed": store.committed, "flushed": store.flushed, "replicated": replicated}
        yield gauge(
            "triomq_watermark_bytes",
            "Offset in the log up to which it is committed, flushed, replicated.",
            [(labels(watermark=name), mark.value) for name, mark in marks.items()],
        )
        yield gauge(
            "triomq_watermark_waiters",
            "Responses and tasks that wait for a watermark.",
            [(labels(watermark=name), mark.waiter_count) for name, mark in marks.items()],
        )
        yield gauge("triomq_store_bytes", "Bytes of the store that hold messages and their entries.", self._sizes())
        contents = store.contents
        files = {"commitlog": len(contents.log.sequence.files), "index": len(contents.index.files)}
        yield gauge("triomq_store_files", "Files.", [(labels(part=part), count) for part, count in files.items()])
        yield gauge("triomq_store_queues", "Consume queues.", one(store.reading.queue_count))
        oldest_ms = store.reading.earliest_log_time()
        yield gauge(
            "triomq_store_oldest_message_timestamp_seconds",
            "Store time of the oldest message, seconds since 1970.",
            one(oldest_ms / 1000) if oldest_ms >= 0 else [],
        )
        yield from self._losses()
        yield counter("triomq_log_lines_lost_total", LOST_LINES, [(labels(to=to), n) for to, n in lost_lines().items()])
        stats = self._parts.serving.tables.stats
        yield counter("triomq_messages_stored_total", "Messages stored, from any source.", one(stats.stored_total))
        yield counter("triomq_stored_bytes_total", "Their bytes.", one(stats.stored_size_total_bytes))
        yield counter("triomq_messages_read_total", "Messages read from queues.", one(stats.read_total))
        yield counter("triomq_puts_failed_total", "Messages that the store refused.", one(stats.put_failed_times))

    def _losses(self) -> Iterator[Family]:
        store = self._parts.serving.store
        yield counter(
            "triomq_store_deleted_files_total",
            "Files of the log that retention deleted, by reason.",
            [(labels(reason=reason), count) for reason, count in store.upkeep.deleted_files.items()],
        )
        report = store.recovery_report
        damaged = {
            "recovery": len(report.damages) if report is not None else 0,
            "reading": store.reading.damaged_count,
        }
        yield counter(
            "triomq_store_damaged_records_total",
            "Damaged ranges that recovery took out of the log, and damaged messages that reads of queues skipped.",
            [(labels(where=where), count) for where, count in damaged.items()],
        )
        counts = self._parts.serving.undeliverable.counts
        yield counter(
            "triomq_undeliverable_messages_total",
            "Delayed and half messages that cannot be stored where they belong, or cannot be read.",
            [(labels(source=source), count) for source, count in counts.items()],
        )

    def _sizes(self) -> Samples:
        reading = self._parts.serving.store.reading
        begin = max(0, reading.min_physical_offset)
        yield labels(part="commitlog"), reading.max_physical_offset - begin
        entries = 0
        for topic in reading.queues():
            entries += reading.stored_entries(topic)
            yield 0
        yield labels(part="consumequeue"), entries * _QUEUE_ENTRY_BYTES

    # -- requests ------------------------------------------------------------------------------------------------------

    def _waits(self) -> Iterator[Family]:
        serving = self._parts.serving
        pools = serving.tables.pools.all()
        held = len(serving.pull.long_polling)
        yield gauge("triomq_long_polls", "Pulls that are held.", one(held))
        yield gauge(
            "triomq_pool_requests",
            "Unfinished requests of a pool, held pulls included.",
            [(labels(pool=pool.name), pool.in_flight) for pool in pools],
        )
        yield gauge(
            "triomq_pool_capacity",
            "The most unfinished requests of a pool.",
            [(labels(pool=pool.name), pool.capacity) for pool in pools],
        )
        yield gauge(
            "triomq_pool_oldest_seconds",
            "Age of the oldest unfinished request of a pool.",
            [(labels(pool=pool.name), pool.head_wait_ms() / 1000) for pool in pools],
        )

    def _requests(self) -> Iterator[Family]:
        serving = self._parts.serving
        limits, pools = serving.tables.limits, serving.tables.pools
        by_gate = limits.refused()
        too_old = limits.too_old()
        refused: list[Sample] = []
        for pool in pools.all():
            old = too_old.get(pool.name, 0)
            gate = by_gate.get(pool.name, 0)
            for reason, count in (("queue_full", pool.rejected - gate), ("too_old", old), ("store_busy", gate - old)):
                refused.append((labels(pool=pool.name, reason=reason), count))
        yield counter("triomq_requests_refused_total", "Requests that got SYSTEM_BUSY.", refused)
        quota_refused, quota_delayed = serving.quotas.refusals.counts()
        for name, meaning, counts in (
            ("triomq_quota_refused_total", "Requests refused because of a quota.", quota_refused),
            ("triomq_quota_delayed_total", "Pulls that waited because of a quota.", quota_delayed),
        ):
            yield counter(
                name, meaning, [(labels(kind=kind, quota=quota), count) for (kind, quota), count in counts.items()]
            )
        errors = Counter[tuple[int, int]]()
        for table in self._processor_tables:
            # From the start, so that the first error is an increase.
            errors.update({(code, int(ResponseCode.SYSTEM_ERROR)): 0 for code in table.codes()})
            errors.update(table.errors)
        yield counter(
            "triomq_request_errors_total",
            "Responses that are not a success, without those to pulls that find nothing.",
            [
                (labels(request_code=_request_name(code), response_code=_response_name(response)), count)
                for (code, response), count in errors.items()
                if response not in NO_ERRORS
            ],
        )
        access = serving.access_control
        yield counter(
            "triomq_auth_failures_total",
            "Requests that access control refused.",
            [(labels(reason=reason), access.refused[reason]) for reason in REFUSALS] if access is not None else [],
        )
        files = serving.tables.access
        yield gauge(
            "triomq_acl_files_rejected",
            "Files of accounts that cannot be used; their former content is in force.",
            one(files.rejected) if files is not None else [],
        )

    # -- other brokers -------------------------------------------------------------------------------------------------

    def _replication(self) -> Iterator[Family]:
        serving = self._parts.serving
        store, replication = serving.store, serving.replication
        is_slave = serving.tables.configuration.role.is_slave and serving.group is None
        end = store.reading.max_physical_offset
        lag: dict[str, int] = {}
        for link in replication.log_server.links:
            if not link.is_silent:
                address = link.remote.rpartition(":")[0]
                lag[address] = max(lag.get(address, 0), end - link.reported)
        yield gauge(
            "triomq_replication_lag_bytes",
            "Bytes of the log that a slave has not reported.",
            [(labels(slave=address), count) for address, count in sorted(lag.items())],
        )
        yield gauge("triomq_replication_slaves", "Connected slaves that count.", one(replication.log_server.copies))
        follower = replication.follower
        if is_slave:
            yield gauge(
                "triomq_replication_follows",
                "1 while this slave is connected to its master and has a log that agrees.",
                one(int(follower.is_following and follower.agrees and follower.refused is None)),
            )
        yield from self._group()

    def _group(self) -> Iterator[Family]:
        """Yield what a member of a DLedger group is and has."""
        serving = self._parts.serving
        member = serving.group.member if serving.group is not None else None
        made = serving.tables.group.made if serving.tables.group is not None else None
        if member is None or made is None:
            return
        roles = [(labels(role=role.value.lower()), int(role is member.role)) for role in type(member.role)]
        yield gauge("triomq_dledger_role", "1 for the role of this member of a group.", roles)
        yield gauge("triomq_dledger_leader_known", "1 if the member knows who leads.", one(int(bool(member.leader))))
        yield gauge("triomq_dledger_term", "The member's term.", one(member.term))
        yield gauge("triomq_dledger_begin_index", "The first entry of its ledger.", one(made.ledger.begin_index))
        yield gauge("triomq_dledger_end_index", "The last entry of its ledger.", one(made.ledger.end_index))
        yield counter(
            "triomq_dledger_refused_connections_total",
            "Connections to the port of dLegerPeers that were closed at once: those of strangers, or above a limit.",
            [(labels(reason=why), member.refused_connections[why]) for why in (STRANGER, *LIMITS)],
        )
        lacks_tables = serving.group is not None and serving.group.lacks_tables() is not None
        yield gauge(
            "triomq_dledger_tables_current",
            "1 if the member has the topics, groups and offsets of the leader.",
            one(int(not lacks_tables)),
        )
        yield gauge("triomq_dledger_committed_index", "The last entry that is committed.", one(member.committed))

    def _delays(self) -> Iterator[Family]:
        serving = self._parts.serving
        progress = serving.delivery.every_level()
        yield gauge(
            "triomq_delay_pending_messages",
            "Delayed messages that wait, by delay level.",
            [(labels(level=str(level)), max(0, newest - done)) for level, (done, newest) in sorted(progress.items())],
        )

    def _groups(self, snapshot: Snapshot) -> Iterator[Family]:
        yield gauge(
            "triomq_consumer_offsets_beyond_end",
            "Queues in which the group's offset is beyond the end, of the pairs that have any.",
            [(labels(topic=pair.topic, group=pair.group), pair.beyond) for pair in snapshot.pairs if pair.beyond],
        )

    def _registration(self) -> Iterator[Family]:
        now = trio.current_time()
        links = self._parts.serving.registration.states(now)
        yield gauge(
            "triomq_namesrv_registered",
            "1 if the last registration at the NameServer succeeded.",
            [(labels(namesrv=address), int(is_complete)) for address, is_complete, _ in links],
        )

    def _tables(self) -> Iterator[Family]:
        metadata = self._parts.serving.tables.metadata
        stats = self._parts.serving.tables.stats
        entries = {
            "topics": len(metadata.topics.names()),
            "groups": len(metadata.groups.names()),
            "online_groups": len(metadata.consumers.groups()),
            "statistics": stats.flow_count(),
        }
        yield gauge(
            "triomq_table_entries", "Entries of a table.", [(labels(table=name), n) for name, n in entries.items()]
        )


def _request_name(code: int) -> str:
    try:
        return RequestCode(code).name.lower()
    except ValueError:
        return str(code)


def _response_name(code: int) -> str:
    try:
        return ResponseCode(code).name.lower()
    except ValueError:
        return str(code)
