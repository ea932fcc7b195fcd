"""The areas of the project: which tests cover which source files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Area:
    """`sources` and `tests` are patterns below the project's directory; files that match `without` are excluded from
    both. Only tests that run in one process belong here: no daemons, no Java.
    """

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()

    def source_files(self, project: Path) -> list[str]:
        spared = set(matches(project, self.without))
        return [path for path in matches(project, self.sources) if path not in spared]

    def test_files(self, project: Path) -> list[str]:
        spared = set(matches(project, self.without))
        return [path for path in matches(project, self.tests) if path not in spared]


def matches(project: Path, patterns: tuple[str, ...]) -> list[str]:
    """Return the files, each once, in the order of the patterns. Raises ValueError for a pattern that matches none."""
    found: dict[str, None] = {}
    for pattern in patterns:
        paths = sorted(str(path.relative_to(project)) for path in project.glob(pattern) if path.is_file())
        if not paths:
            raise ValueError(f"tests/mutation/areas.py: {pattern} matches no file; it was moved or renamed")
        found.update(dict.fromkeys(paths))
    return list(found)


WHOLE_BROKER = ("tests/broker/test_broker_golden_wire.py", "tests/broker/test_broker_spec_walk.py")

AREAS = {
    "frames": Area(
        ("protocol/frame.py", "protocol/command.py", "protocol/json_header.py"),
        (
            "tests/protocol/test_protocol_frame_decoder.py",
            "tests/protocol/test_protocol_json_header.py",
            "tests/golden/test_golden_wire.py",
        ),
    ),
    "records": Area(
        ("protocol/record.py", "protocol/properties.py", "protocol/entries.py"),
        (
            "tests/protocol/test_protocol_record.py",
            "tests/store/test_store_message_store.py",
            "tests/golden/test_golden_wire.py",
        ),
    ),
    "remoting": Area(("remoting/**/*.py",), ("tests/remoting/**/test_*.py",)),
    "store": Area(
        ("store/**/*.py",),
        ("tests/store/test_*.py", "tests/dledger/test_dledger_store.py"),
        (
            "store/__main__.py",
            "store/config.py",
            "store/rocketmq_config.py",
            "store/errors.py",
            "store/**/progress.py",
            "tests/store/test_store_power_cuts.py",
            "tests/store/test_store_sigkill.py",
        ),
    ),
    # The rooms of the broker, each with the tests that are about it; the broker as a whole is below.
    "pulls": Area(
        ("broker/pulls/*.py", "broker/processors/pull.py"),
        (
            "tests/broker/test_broker_long_polling.py",
            "tests/broker/test_broker_pull.py",
            "tests/broker/test_broker_filter*.py",
            "tests/broker/test_broker_quota_pulls.py",
            *WHOLE_BROKER,
        ),
    ),
    "transactions": Area(
        ("broker/transactions/*.py", "broker/processors/end_transaction.py"),
        (
            "tests/broker/test_broker_transaction*.py",
            "tests/broker/test_broker_torn_transactions.py",
            "tests/broker/test_broker_undeliverable.py",
            *WHOLE_BROKER,
        ),
    ),
    "acl": Area(
        ("broker/acl/*.py", "broker/processors/acl.py"),
        (
            "tests/broker/test_broker_acl*.py",
            "tests/broker/test_broker_bound_signatures.py",
            "tests/broker/test_broker_failed_signatures.py",
            "tests/broker/test_broker_audit.py",
            *WHOLE_BROKER,
        ),
    ),
    "nameservers": Area(
        ("broker/nameservers/*.py",),
        ("tests/broker/test_broker_registration.py", "tests/broker/test_broker_topics_at_once.py", *WHOLE_BROKER),
    ),
    "replication": Area(
        ("broker/replication/*.py",),
        (
            "tests/replication/test_replication_frames.py",
            "tests/replication/test_replication_recorded.py",
            "tests/replication/test_replication_tables.py",
            "tests/replication/test_replication_waiting.py",
            "tests/replication/test_replication_following.py",
            "tests/replication/test_replication_overlap.py",
            "tests/replication/test_replication_queue_ends.py",
        ),
    ),
    "quotas": Area(("broker/quotas/*.py",), ("tests/broker/test_broker_quota*.py",)),
    "lifecycle": Area(
        (
            "broker/lifecycle/*.py",
            "broker/assembly/*.py",
            "broker/controller.py",
            "broker/tasks.py",
            "broker/departures.py",
            "broker/extensions.py",
            "broker/hooks.py",
            "broker/start_warnings.py",
        ),
        (
            "tests/broker/test_broker_dev.py",
            "tests/broker/test_broker_quickstart.py",
            "tests/broker/test_broker_fail_stop.py",
            "tests/broker/test_broker_stop.py",
            "tests/broker/test_broker_store_life.py",
            "tests/broker/test_broker_tasks.py",
            "tests/broker/test_broker_local_time.py",
            "tests/broker/test_broker_departures.py",
            "tests/broker/test_broker_extensions.py",
            "tests/broker/test_broker_start_warnings.py",
            "tests/broker/test_broker_spans.py",
            *WHOLE_BROKER,
        ),
    ),
    "settings": Area(
        ("broker/settings/*.py", "broker/config*.py", "broker/local_address.py", "broker/runtime_info.py"),
        (
            "tests/broker/test_broker_config*.py",
            "tests/broker/test_broker_runtime.py",
            "tests/broker/test_broker_limits.py",
            "tests/broker/test_broker_quota_values.py",
            "tests/broker/test_broker_start_warnings.py",
        ),
    ),
    "processors": Area(
        ("broker/processors/*.py", "broker/client_notifier.py", "broker/topic_*.py"),
        (
            "tests/broker/test_broker_*processors.py",
            "tests/broker/test_broker_client_notifier.py",
            "tests/broker/test_broker_disagreeing_members.py",
            "tests/broker/test_broker_heartbeat_steps.py",
            "tests/broker/test_broker_long_batches.py",
            "tests/broker/test_broker_message_writer.py",
            "tests/broker/test_broker_pull.py",
            "tests/broker/test_broker_queue_*.py",
            "tests/broker/test_broker_refused_sends.py",
            "tests/broker/test_broker_reply.py",
            "tests/broker/test_broker_runtime.py",
            "tests/broker/test_broker_send_back.py",
            "tests/broker/test_broker_topics_made_again.py",
            *WHOLE_BROKER,
        ),
    ),
    "messages": Area(
        (
            "broker/message_writer.py",
            "broker/pending_put.py",
            "broker/put_responses.py",
            "broker/delay.py",
            "broker/undeliverable.py",
            "broker/record_border.py",
            "broker/protection.py",
            "broker/limits.py",
            "broker/pools.py",
            "broker/audit.py",
        ),
        (
            "tests/broker/test_broker_message_writer.py",
            "tests/broker/test_broker_delay.py",
            "tests/broker/test_broker_covered.py",
            "tests/broker/test_broker_undeliverable.py",
            "tests/broker/test_broker_protection.py",
            "tests/broker/test_broker_limits.py",
            "tests/broker/test_broker_audit.py",
            "tests/broker/test_broker_refused_sends.py",
            *WHOLE_BROKER,
        ),
    ),
    "group": Area(("broker/group/*.py",), ("tests/broker/test_broker_group_*.py",)),
    "views": Area(
        ("broker/views/*.py",), ("tests/broker/test_broker_dashboard*.py", "tests/broker/test_broker_view_*.py")
    ),
    "figures": Area(
        ("broker/figures/*.py", "broker/metrics/*.py"),
        (
            "tests/broker/test_broker_*metrics.py",
            "tests/broker/test_broker_*figures.py",
            "tests/broker/test_broker_stats.py",
            "tests/broker/test_broker_lag_history.py",
            "tests/broker/test_broker_latencies.py",
            "tests/broker/test_broker_monitoring_files.py",
            "tests/broker/test_broker_protection.py",
            "tests/broker/test_broker_readiness.py",
            "tests/broker/test_broker_runtime.py",
        ),
    ),
    "spans": Area(("broker/spans/*.py",), ("tests/broker/test_broker_spans.py", *WHOLE_BROKER)),
    "tables": Area(
        ("broker/tables/*.py",),
        (
            "tests/broker/test_broker_*table*.py",
            "tests/broker/test_broker_covered.py",
            "tests/broker/test_broker_fragments.py",
            "tests/broker/test_broker_filter*.py",
            "tests/broker/test_broker_queue_locks.py",
            "tests/broker/test_broker_stored_file.py",
            "tests/broker/test_broker_topics_*.py",
            "tests/broker/test_broker_write_behind.py",
            "tests/broker/test_broker_admin_processors.py",
            "tests/broker/test_broker_client_processors.py",
            "tests/broker/test_broker_disagreeing_members.py",
            "tests/broker/test_broker_heartbeat_steps.py",
        ),
    ),
    "filters": Area(
        ("broker/filters/*.py",),
        ("tests/broker/test_broker_filter*.py", "tests/broker/test_broker_sql92*.py"),
    ),
    "rebalance": Area(
        ("client/consume/rebalance.py", "client/core/allocation.py"),
        (
            "tests/client/test_client_allocation.py",
            "tests/client/test_client_rebalance.py",
            "tests/client/test_client_concurrent.py",
            "tests/client/test_client_consumer.py",
        ),
    ),
    # The other rooms as a whole.
    "protocol": Area(("protocol/**/*.py",), ("tests/protocol/test_*.py",)),
    "http2": Area(("http2/**/*.py",), ("tests/http2/test_*.py",)),
    "grpc_front": Area(("grpc_front/**/*.py",), ("tests/grpc_front/test_*.py",)),
    "dledger": Area(
        ("dledger/**/*.py",),
        ("tests/dledger/test_*.py",),
        ("dledger/__main__.py", "tests/dledger/test_dledger_processes.py"),
    ),
    "daemon": Area(("daemon/*.py",), ("tests/daemon/test_*.py",)),
    "monitoring": Area(("monitoring/*.py",), ("tests/monitoring/test_*.py",)),
    "dashboard": Area(("dashboard/*.py",), ("tests/dashboard/test_*.py",)),
    "namesrv": Area(
        ("namesrv/*.py",),
        ("tests/namesrv/test_*.py",),
        ("namesrv/__main__.py", "tests/namesrv/test_namesrv_process.py"),
    ),
    "broker": Area(
        ("broker/**/*.py",),
        ("tests/broker/test_*.py", "tests/replication/test_replication_*.py"),
        ("broker/__main__.py", "tests/replication/test_replication_process*.py"),
    ),
    "client": Area(
        ("client/**/*.py",),
        ("tests/client/test_*.py",),
        ("tests/client/test_client_*process*.py", "tests/client/test_client_examples.py"),
    ),
    "spark": Area(("spark/**/*.py",), ("tests/spark/test_*.py",), ("tests/spark/test_spark_session_*.py",)),
    "pipeline": Area(
        ("pipeline/**/*.py",), ("tests/pipeline/test_*.py",), ("tests/pipeline/test_pipeline_copy_kills.py",)
    ),
    "admin": Area(("admin/**/*.py",), ("tests/admin/test_*.py",), ("admin/__main__.py",)),
}
