"""The pages about the broker as a whole: overview, and the broker with its neighbours and configuration."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

from triomq.broker.assembly.serving import Serving
from triomq.broker.configuration_update import is_closed
from triomq.broker.metrics import stats_names as names
from triomq.broker.views.alarms import Alarms
from triomq.broker.views.neighbours import Neighbours
from triomq.broker.views.settings_actions import is_editable
from triomq.broker.views.topics import USER_KINDS, Topics
from triomq.daemon.secret_names import is_secret
from triomq.dashboard.views import Ask, Data, Steps
from triomq.monitoring.health import Check
from triomq.monitoring.process import anonymous_bytes, resident_bytes
from triomq.protocol.settings import declarations, to_text
from triomq.protocol.system_topics import DLQ_PREFIX, TRANS_HALF_TOPIC, is_system_group
from triomq.remoting.server import RemotingServer

_STEP_TOPICS = 64
_SECTIONS = ("Broker", "Listening", "Connecting", "Store")
"""Titles of the records of the configuration."""


class Overview:
    """`server` has the connections. `began` is when the broker was started, by a clock that only grows. `checks` are
    those of /health/ready."""

    def __init__(
        self,
        serving: Serving,
        server: RemotingServer,
        began: float,
        checks: Callable[[], list[Check]],
        neighbours: Neighbours,
    ) -> None:
        self._serving = serving
        self._server = server
        self._began = began
        self._topics = Topics(serving)
        self._checks = checks
        self._alarms = Alarms(serving)
        self._neighbours = neighbours

    def checks(self) -> list[Data]:
        """Return the checks of /health/ready, each with its reason."""
        return [{"name": check.name, "ok": check.is_ok, "detail": check.detail} for check in self._checks()]

    def overview(self, ask: Ask) -> Steps:
        """Make the overview."""
        serving, tables = self._serving, self._serving.tables
        metadata = tables.metadata
        stats = tables.stats
        reading = serving.store.reading
        cluster = tables.configuration.broker.broker_cluster_name
        topics = yield from self._topics.readable(ask, USER_KINDS)
        dead = 0
        for number, topic in enumerate(topics):
            if topic.startswith(DLQ_PREFIX):
                ends = reading.ends(topic)
                dead += sum(end - reading.min_offset(topic, queue_id) for queue_id, end in ends.items())
            if number % _STEP_TOPICS == _STEP_TOPICS - 1:
                yield
        rates = {topic: stats.per_second(names.TOPIC_PUT_NUMS, topic) for topic in stats.keys(names.TOPIC_PUT_NUMS)}
        yield
        busiest = sorted(
            ((rate, topic) for topic, rate in rates.items() if rate > 0 and ask.may_read(topic)), reverse=True
        )
        alarms = yield from self._alarms.found(ask)
        checks = self.checks()
        return {
            "alarms": [finding.item() for finding in alarms],
            "cluster": self._neighbours.last_alarms(ask),
            "is_ready": all(check["ok"] for check in checks),
            "checks": checks,
            "figures": {
                "stored_per_second": round(stats.per_second(names.BROKER_PUT_NUMS, cluster), 2),
                "read_per_second": round(stats.per_second(names.BROKER_GET_NUMS, cluster), 2),
                "topics": len(topics),
                "groups": len([g for g in metadata.groups.names() if ask.may_read_group(g) and not is_system_group(g)]),
                "connections": len(self._server.connections),
                "held_pulls": len(serving.pull.long_polling),
                "dead_letters": dead,
                "delayed": self.delayed(),
                "half_messages": self._half_messages(),
                "memory_bytes": resident_bytes(),
                "anonymous_bytes": anonymous_bytes(),
                "uptime_seconds": round(time.monotonic() - self._began),
            },
            "busiest": [{"topic": topic, "rate": round(rate, 2)} for rate, topic in busiest[:10]],
        }

    def delayed(self) -> int:
        """Return the number of delayed messages that wait."""
        return sum(max(0, newest - done) for done, newest in self._serving.delivery.every_level().values())

    def _half_messages(self) -> int:
        log = self._serving.transactions.log
        reading = self._serving.store.reading
        ends = ((queue_id, reading.max_offset(TRANS_HALF_TOPIC, queue_id)) for queue_id in log.queue_ids())
        return sum(max(0, end - log.half_offset(queue_id)) for queue_id, end in ends)

    # -- the broker ----------------------------------------------------------------------------------------------------

    def broker(self, ask: Ask) -> Steps:
        """Make the page of the broker."""
        serving = self._serving
        broker, store = serving.tables.configuration.broker, serving.store
        role = serving.tables.configuration.role
        reading = store.reading
        yield
        return {
            "identity": {
                "cluster": broker.broker_cluster_name,
                "name": broker.broker_name,
                "id": role.broker_id,
                "role": role.broker_role.name,
                "address": serving.address,
                "uptime_seconds": round(time.monotonic() - self._began),
            },
            "store": {
                "log_begin": max(0, reading.min_physical_offset),
                "log_end": reading.max_physical_offset,
                "unsynced_bytes": max(0, reading.max_physical_offset - store.flushed.value),
                "oldest_message_ms": reading.earliest_log_time(),
                "queues": reading.queue_count,
                "disk_used_ratio": round(store.files.disk_usage_ratio(store.paths.commit_logs[0]), 4),
            },
            "checks": self.checks(),
            "slaves": self._slaves() if ask.sees_all else [],
            "name_servers": self._name_servers() if ask.sees_all else [],
            "pools": [
                {
                    "name": pool.name,
                    "in_flight": pool.in_flight,
                    "capacity": pool.capacity,
                    "oldest_seconds": pool.head_wait_ms() / 1000,
                }
                for pool in serving.tables.pools.all()
            ],
        }

    def _slaves(self) -> list[Data]:
        end = self._serving.store.reading.max_physical_offset
        links = self._serving.replication.log_server.links
        return [{"address": link.remote, "behind_bytes": max(0, end - link.reported)} for link in links]

    def _name_servers(self) -> list[Data]:
        states = self._serving.registration.states(trio.current_time())
        return [{"address": address, "ok": ok, "seconds_ago": ago} for address, ok, ago in states]

    def configuration(self, ask: Ask) -> Steps:
        """Make the page of the configuration: every key, the changed ones marked, secrets left out."""
        search = ask.query.get("q", "").strip().lower()
        only_changed = ask.query.get("changed") == "1"
        rows: list[Data] = []
        for section, record in zip(_SECTIONS, self._serving.tables.configuration.listed_records(), strict=True):
            texts = to_text(record, null="")
            for one in declarations(type(record)):
                value = getattr(record, one.name)
                is_changed = not one.is_computed and value != one.default
                if search not in one.key.lower() or (only_changed and not is_changed):
                    continue
                text = "***" if is_secret(one.key) else texts[one.shown_as]
                shown = {"key": one.key, "value": text, "is_changed": is_changed, "meaning": one.meaning}
                rows.append({**shown, "section": section, "can_change": is_editable(one)})
            yield
        rows.sort(key=lambda row: str(row["key"]).lower())
        return {
            "rows": rows,
            "sections": _SECTIONS,
            "search": ask.query.get("q", ""),
            "only_changed": only_changed,
            "is_closed": is_closed(self._serving.tables.configuration.broker),
        }
