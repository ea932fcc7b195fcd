"""`mqpipeline table`: rows, positions, and what it refuses."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from free_ports import free_port
from tables_kept import FORMATS, create, keep, places, rows, said, send, started, words

from triomq.spark.jobs import main as jobs
from triomq.testing import LocalCluster

DEADLINE_SECONDS = 60

formats = pytest.mark.parametrize("kind", FORMATS)


@formats
def test_a_table_has_every_message_once(shop: LocalCluster, tmp_path: Path, kind: str, capsys: Any) -> None:
    topic = f"Rows{kind}"
    create(shop, topic)
    send(shop, topic, 30)
    assert keep(shop, topic, tmp_path / "t", kind, "--commit-rows", "7") == 0
    assert said(capsys) == (f"30 rows committed to {tmp_path}/t\n", "")
    table = rows(tmp_path / "t", topic, kind)
    assert places(table) == [(number % 3, number // 3) for number in sorted(range(30), key=lambda n: (n % 3, n))]
    row = next(row for row in table.to_pylist() if row["keys"] == "k4")
    assert (row["topic"], row["body"], row["tags"], dict(row["properties"])["number"]) == (topic, b"4", "t", "4")
    assert row["brokerName"] == next(iter(shop.brokers))
    assert row["date"] == row["storeTimestamp"].date() and isinstance(row["date"], date)
    assert keep(shop, topic, tmp_path / "t", kind) == 0
    assert said(capsys)[0] == f"0 rows committed to {tmp_path}/t\n"
    send(shop, topic, 5)
    assert keep(shop, topic, tmp_path / "t", kind) == 0
    found = places(rows(tmp_path / "t", topic, kind))
    assert len(found) == len(set(found)) == 35


@formats
def test_a_killed_table_loses_and_repeats_nothing(shop: LocalCluster, tmp_path: Path, kind: str) -> None:
    topic = f"Killed{kind}"
    create(shop, topic)
    send(shop, topic, 600)
    rng = random.Random(7)
    given = words(shop.name_server, topic, tmp_path, kind, "--once", "--commit-rows", "20")
    for _ in range(4):
        job = started(given)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not any(tmp_path.iterdir()) and time.monotonic() < deadline:  # the libraries are loaded
            try:
                job.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
        try:
            job.wait(rng.uniform(0.0, 0.5))
        except subprocess.TimeoutExpired:
            job.kill()
        job.communicate()
    job = started(given)
    _, err = job.communicate(timeout=DEADLINE_SECONDS)
    assert (job.returncode, err) == (0, "")
    found = places(rows(tmp_path, topic, kind))
    assert len(found) == len(set(found)) == 600


@formats
def test_of_two_runs_at_once_one_is_refused(shop: LocalCluster, tmp_path: Path, kind: str) -> None:
    from triomq.pipeline.tables.keeper import Keeper
    from triomq.pipeline.tables.sources import BrokerSource
    from triomq.spark.cluster import Cluster
    from triomq.spark.jobs.session import JobFailed
    from triomq.spark.options import OptionTable, connection_options

    topic = f"Two{kind}"
    create(shop, topic)
    send(shop, topic, 12)

    with Cluster(connection_options(OptionTable({"nameServer": shop.name_server}, ()))) as cluster:
        source = BrokerSource(cluster, topic)
        targets = opened(kind, tmp_path, topic), opened(kind, tmp_path, topic)
        first, second = (Keeper(source, each, 6) for each in targets)
        first.open()
        if kind == "parquet":
            with pytest.raises(JobFailed, match="another run writes to this table"):
                second.open()
        else:
            second.open()
            assert first.commit(first.ends()) == 6
            with pytest.raises(JobFailed, match="another run has committed to this table"):
                second.commit(second.ends())
        while first.commit(first.ends()):
            pass
        for each in targets:
            each.close()
    found = places(rows(tmp_path, topic, kind))
    assert len(found) == len(set(found)) == 12


@formats
def test_a_table_follows_its_topic_until_it_is_asked_to_end(shop: LocalCluster, tmp_path: Path, kind: str) -> None:
    topic = f"Live{kind}"
    create(shop, topic)
    send(shop, topic, 6)
    job = started(words(shop.name_server, topic, tmp_path / "t", kind, "--commit-seconds", "0.1"))
    try:
        wait_for(job, tmp_path / "t", topic, kind, 6)
        send(shop, topic, 6)
        wait_for(job, tmp_path / "t", topic, kind, 12)
        job.send_signal(signal.SIGTERM)
        out, err = job.communicate(timeout=DEADLINE_SECONDS)
    finally:
        job.kill()
    assert (job.returncode, out, err) == (0, f"12 rows committed to {tmp_path}/t\n", "")


def test_figures_are_served_while_it_runs(shop: LocalCluster, tmp_path: Path) -> None:
    create(shop, "Figures")
    send(shop, "Figures", 6)
    port = free_port()
    job = started(words(shop.name_server, "Figures", tmp_path / "t", "parquet", "--metrics-port", str(port)))
    page = ""
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while 'triomq_table_rows_total{topic="Figures"} 6' not in page:
            assert job.poll() is None, job.communicate()
            assert time.monotonic() < deadline, page
            time.sleep(0.05)
            with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
                page = response.read().decode()
        second = words(shop.name_server, "Figures", tmp_path / "u", "parquet", "--metrics-port", str(port))
        refused = subprocess.run(started_command(second), capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    finally:
        job.terminate()
        _, err = job.communicate(timeout=DEADLINE_SECONDS)
    assert (job.returncode, err) == (0, "")
    for line in (
        'triomq_table_commits_total{topic="Figures"} 1',
        'triomq_table_lag{topic="Figures"} 0',
        'triomq_table_dead_rows_total{topic="Figures"} 0',
    ):
        assert line in page.splitlines()
    expected = f"mqpipeline table: --metrics-port {port}: Address already in use\n"
    assert (refused.returncode, refused.stderr) == (2, expected)


def wait_for(job: subprocess.Popen[str], folder: Path, topic: str, kind: str, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    found = 0
    while found < count:
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < deadline, f"only {found} rows"
        try:
            found = rows(folder, topic, kind).num_rows
        except Exception:  # the table is being made
            found = 0
    assert found == count


@formats
def test_tables_of_something_else_are_refused(shop: LocalCluster, tmp_path: Path, kind: str, capsys: Any) -> None:
    create(shop, "Mine_")
    create(shop, "Mine-")  # Iceberg names have no hyphen: both are the same table there
    send(shop, "Mine_", 3)
    assert keep(shop, "Mine_", tmp_path, kind) == 0
    capsys.readouterr()
    assert keep(shop, "Mine-", tmp_path, kind) == 2
    assert capsys.readouterr().err == "mqpipeline table: --to: it is a table of topic 'Mine_', not of 'Mine-'\n"
    with LocalCluster(cluster_name="other") as other:
        create(other, "Mine_")
        assert keep(other, "Mine_", tmp_path, kind) == 2
    assert capsys.readouterr().err == "mqpipeline table: --to: it is a table of cluster 'shop', not of 'other'\n"


def test_a_table_of_another_schema_is_refused(shop: LocalCluster, tmp_path: Path, capsys: Any) -> None:
    create(shop, "Schema")
    assert keep(shop, "Schema", tmp_path, "parquet") == 0
    manifest = next((tmp_path / "_manifest").glob("*.json"))
    entry = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**entry, "columns": {**entry["columns"], "tags": "int"}}))
    capsys.readouterr()
    assert keep(shop, "Schema", tmp_path, "parquet") == 2
    expected = "mqpipeline table: --to: it is a table of another schema: its column 'tags' is int, not string\n"
    assert capsys.readouterr().err == expected


@formats
def test_wrong_places_are_one_line(shop: LocalCluster, tmp_path: Path, kind: str, capsys: Any) -> None:
    assert keep(shop, "NoSuchTopic", tmp_path / "t", kind) == 2
    assert capsys.readouterr().err == "mqpipeline table: --topic: topic 'NoSuchTopic' does not exist\n"
    assert not (tmp_path / "t").exists()
    create(shop, "Place")
    (tmp_path / "file").write_text("")
    assert keep(shop, "Place", tmp_path / "file", kind) == 2
    assert capsys.readouterr().err == f"mqpipeline table: --to: {tmp_path}/file is not a directory\n"
    assert jobs.main(words(f"127.0.0.1:{free_port()}", "Place", tmp_path / "t", kind, "--once")) == 2
    err = capsys.readouterr().err
    assert err.startswith("mqpipeline table: no name server responded") and err.count("\n") == 1


@formats
def test_a_full_disk_is_one_line_and_nothing_is_lost(shop: LocalCluster, tmp_path: Path, kind: str) -> None:
    topic = f"Full{kind}"
    create(shop, topic)
    send(shop, topic, 9)
    given = words(shop.name_server, topic, tmp_path, kind, "--once")
    assert keep(shop, topic, tmp_path, kind) == 0
    send(shop, topic, 300)
    limited = subprocess.run(  # as on a full disk, a write fails in the middle of a file
        ["bash", "-c", 'ulimit -f 4; trap "" XFSZ; exec "$@"', "-", *started_command(given)],
        capture_output=True, text=True, timeout=DEADLINE_SECONDS,
    )  # fmt: skip
    assert limited.returncode == 2, limited
    lines = limited.stderr.splitlines()
    assert lines[-1].startswith("mqpipeline table: --to ")
    assert len(lines) == 1 or kind == "delta", "a thread of the library for Delta reports on its own"
    assert keep(shop, topic, tmp_path, kind) == 0
    found = places(rows(tmp_path, topic, kind))
    assert len(found) == len(set(found)) == 309


def started_command(given: list[str]) -> list[str]:
    return [sys.executable, "-m", "triomq.spark.jobs.main", *given]


def test_a_dry_run_makes_nothing(shop: LocalCluster, tmp_path: Path, capsys: Any) -> None:
    create(shop, "Dry", 2)
    send(shop, "Dry", 5, 2)
    assert keep(shop, "Dry", tmp_path / "t", "delta", "--dry-run") == 0
    broker = next(iter(shop.brokers))
    expected = f"{broker} queue 0: 3 rows (0 to 3)\n{broker} queue 1: 2 rows (0 to 2)\n5 rows would be read\n"
    assert said(capsys)[0] == expected
    assert not (tmp_path / "t").exists()
    assert keep(shop, "Dry", tmp_path / "t", "delta") == 0
    capsys.readouterr()
    assert keep(shop, "Dry", tmp_path / "t", "delta", "--dry-run") == 0
    assert capsys.readouterr().out.endswith("0 rows would be read\n")


def test_a_queue_that_is_shorter_than_the_table_is_refused(shop: LocalCluster, tmp_path: Path, capsys: Any) -> None:
    create(shop, "Shorter")
    send(shop, "Shorter", 9)
    assert keep(shop, "Shorter", tmp_path, "parquet") == 0
    manifest = max((tmp_path / "_manifest").glob("*.json"))
    entry = json.loads(manifest.read_text())
    brokers = entry["positions"]["Shorter"]
    manifest.write_text(json.dumps({**entry, "positions": {"Shorter": {name: {"0": 7} for name in brokers}}}))
    capsys.readouterr()
    assert keep(shop, "Shorter", tmp_path, "parquet") == 2
    err = capsys.readouterr().err
    assert "Shorter/" in err and "/0 ends at 3, and the table has it up to 7" in err and err.count("\n") == 1


def test_store_files_continue_what_a_broker_began(tmp_path: Path, capsys: Any) -> None:
    store, folder = tmp_path / "cluster", tmp_path / "t"
    with LocalCluster(store=store) as cluster:
        broker = next(iter(cluster.brokers))
        create(cluster, "Stored")
        send(cluster, "Stored", 9)
        assert keep(cluster, "Stored", folder, "delta") == 0
        send(cluster, "Stored", 30)
    root = next(path.parent for path in store.rglob("commitlog"))
    where = ["table", "--store", str(root), "--to", str(folder), "--format", "delta", "--once", "--topic"]
    capsys.readouterr()
    assert jobs.main([*where, "Stored"]) == 2
    assert said(capsys)[1].startswith("mqpipeline table: --store: no broker.conf tells the name of the broker")
    (root / "broker.conf").write_text(f"brokerName={broker}\n")
    assert jobs.main([*where, "Stored", "--commit-rows", "7"]) == 0
    assert said(capsys) == (f"30 rows committed to {folder}\n", "")
    table = rows(folder, "Stored", "delta")
    found = places(table)
    assert len(found) == len(set(found)) == 39
    assert sorted(table["body"].to_pylist()) == sorted([b"%d" % number for number in [*range(9), *range(30)]])
    assert jobs.main([*where, "Nothing"]) == 2
    assert said(capsys)[1] == f"mqpipeline table: --topic: topic 'Nothing' does not exist in {root}\n"
    assert jobs.main([*where, "Stored", "-n", "127.0.0.1:1"]) == 2
    assert said(capsys)[1] == "mqpipeline table: give either --name-server or --store\n"


def data_files(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("date=*/topic=*/*.parquet"))


@formats
def test_small_files_are_merged_and_old_days_removed(
    shop: LocalCluster, tmp_path: Path, kind: str, recwarn: pytest.WarningsRecorder
) -> None:
    from triomq.pipeline.tables import upkeep

    topic = f"Merged{kind}"
    create(shop, topic)
    send(shop, topic, 12)
    assert keep(shop, topic, tmp_path, kind, "--commit-rows", "3") == 0
    before = rows(tmp_path, topic, kind)
    assert used_files(tmp_path, topic, kind) > 3
    assert keep(shop, topic, tmp_path, kind, "--compact", "--retention-days", "1") == 0
    assert not [str(warning.message) for warning in recwarn if "did not match" in str(warning.message)]
    after = rows(tmp_path, topic, kind)
    assert places(after) == places(before)
    assert sorted(after["body"].to_pylist()) == sorted(before["body"].to_pylist())
    assert used_files(tmp_path, topic, kind) == len(set(before["date"].to_pylist()))
    send(shop, topic, 3)
    assert keep(shop, topic, tmp_path, kind) == 0  # the positions are as before
    assert len(places(rows(tmp_path, topic, kind))) == 15
    later = upkeep.utc_day() + timedelta(days=3)
    target = opened(kind, tmp_path, topic)
    try:
        assert target.about() is not None
        upkeep.Upkeep([target], False, 2, today=lambda: later).run()
    finally:
        target.close()
    assert used_files(tmp_path, topic, kind) == 0
    assert keep(shop, topic, tmp_path, kind) == 0
    assert used_files(tmp_path, topic, kind) == 0


def used_files(folder: Path, topic: str, kind: str) -> int:
    """Return how many files the table has now."""
    if kind == "delta":
        from deltalake import DeltaTable

        return len(DeltaTable(folder).file_uris())
    if kind == "parquet":
        return data_files(folder)
    target = opened(kind, folder, topic)
    try:
        target.about()
        return int(target._table.inspect.files().num_rows)
    finally:
        target.close()


def opened(kind: str, folder: Path, topic: str) -> Any:
    if kind == "delta":
        from triomq.pipeline.tables.delta import DeltaTarget

        return DeltaTarget(str(folder), {})
    if kind == "iceberg":
        from triomq.pipeline.tables.iceberg import IcebergTarget

        return IcebergTarget(str(folder), topic, {})
    from triomq.pipeline.tables.parquet import ParquetTarget

    return ParquetTarget(str(folder))


def test_a_merge_that_was_killed_is_completed(shop: LocalCluster, tmp_path: Path, monkeypatch: Any) -> None:
    from triomq.pipeline.tables.parquet import ParquetTarget

    create(shop, "Half")
    send(shop, "Half", 12)
    assert keep(shop, "Half", tmp_path, "parquet", "--commit-rows", "3") == 0
    before = places(rows(tmp_path, "Half", "parquet"))

    def killed(self: Any) -> None:
        if self._last["removed"]:
            raise KeyboardInterrupt
        finish(self)

    finish = ParquetTarget._finish
    with monkeypatch.context() as patched:
        patched.setattr(ParquetTarget, "_finish", killed)
        with pytest.raises(KeyboardInterrupt):
            keep(shop, "Half", tmp_path, "parquet", "--compact")
    assert data_files(tmp_path) > 1
    assert keep(shop, "Half", tmp_path, "parquet") == 0
    assert places(rows(tmp_path, "Half", "parquet")) == before
    assert data_files(tmp_path) == 1
