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
    "remoting": Area(
        (
            "remoting/connection.py",
            "remoting/turn.py",
            "remoting/poller.py",
            "remoting/unanswered.py",
            "remoting/processor_table.py",
            "remoting/memory.py",
            "remoting/connection_tasks.py",
        ),
        ("tests/remoting/test_*.py",),
    ),
    "store": Area(
        ("store/**/*.py",),
        ("tests/store/test_*.py",),
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
        ("broker/long_polling.py", "broker/delayed_pulls.py", "broker/processors/pull.py"),
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
            "broker/transactions.py",
            "broker/producer_checks.py",
            "broker/transaction_check.py",
            "broker/processors/end_transaction.py",
        ),
        ("tests/broker/test_broker_transaction*.py", *WHOLE_BROKER),
    ),
    "acl": Area(
        ("broker/acl/*.py", "broker/processors/acl.py"),
        ("tests/broker/test_broker_acl*.py", *WHOLE_BROKER),
    ),
    "registration": Area(
        ("broker/registration.py", "broker/registration_request.py", "broker/nameserver_link.py"),
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
}
