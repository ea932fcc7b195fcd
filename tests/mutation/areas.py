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
    "long polling": Area(
        ("broker/pulls/long_polling.py", "broker/pulls/delayed_pulls.py", "broker/processors/pull.py"),
        ("tests/broker/test_broker_long_polling.py", "tests/broker/test_broker_pull.py", *WHOLE_BROKER),
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
    "transactions": Area(
        (
            "broker/transactions/transactions.py",
            "broker/transactions/producer_checks.py",
            "broker/transactions/check.py",
            "broker/processors/end_transaction.py",
        ),
        ("tests/broker/test_broker_transaction*.py", *WHOLE_BROKER),
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
    "registration": Area(
        (
            "broker/nameservers/registration.py",
            "broker/nameservers/registration_request.py",
            "broker/nameservers/link.py",
        ),
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
        ),
    ),
    "quotas": Area(("broker/quotas/*.py",), ("tests/broker/test_broker_quota*.py",)),
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
    "broker": Area(("broker/**/*.py",), ("tests/broker/test_*.py",), ("broker/__main__.py",)),
    "client": Area(
        ("client/**/*.py",),
        ("tests/client/test_*.py",),
        ("tests/client/test_client_*process*.py", "tests/client/test_client_examples.py"),
    ),
    "spark": Area(("spark/**/*.py",), ("tests/spark/test_*.py",), ("tests/spark/test_spark_session_*.py",)),
    "admin": Area(("admin/**/*.py",), ("tests/admin/test_*.py",), ("admin/__main__.py",)),
}
