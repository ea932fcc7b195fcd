"""Store directories in real Spark: rows as the real broker recovered them, errors, audit and rebuild."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triomq.spark.store_files import ENTRY

pytestmark = pytest.mark.spark


def read(spark: Any, root: Path, **options: Any) -> Any:
    return spark.read.format("rocketmq-store").options(**options).load(str(root))


def test_rows_are_what_the_real_broker_recovered(
    spark: Any, unpacked: Callable[[str], Path], expected: Callable[[str], Any]
) -> None:
    rows = read(spark, unpacked("1a_clean")).orderBy("physicalOffset").collect()
    wanted = expected("1a_clean")["messages"]
    assert len(rows) == len(wanted)
    for row, message in zip(rows, wanted, strict=True):
        assert (row.physicalOffset, row.topic, row.queueId, row.queueOffset) == (
            message["phys"],
            message["topic"],
            message["queueId"],
            message["queueOffset"],
        )
        assert hashlib.sha256(row.body).hexdigest() == message["bodySha256"]
        assert (row.tags, row["keys"], row.properties) == (message["tags"], message["keys"], message["properties"])
        assert row.msgId == (message["msgId"] or message["offsetMsgId"])
        assert round(row.storeTimestamp.timestamp() * 1000) == message["storeTimestamp"]


def test_other_columns_and_shapes(spark: Any, unpacked: Callable[[str], Path], expected: Callable[[str], Any]) -> None:
    root, wanted = unpacked("1a_clean"), expected("1a_clean")
    reader = spark.read.format("rocketmq-store").schema("storeHost string, recordCrc32 bigint, physicalOffset bigint")
    rows = reader.load(str(root)).orderBy("physicalOffset").collect()
    assert [(row.storeHost, row.recordCrc32) for row in rows] == [
        (message["storeHost"], message["recordCrc32"]) for message in wanted["messages"]
    ]
    kafka = read(spark, root, rowFormat="kafka", includeProperties="true", subscribe="GoldOrders")
    assert kafka.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert kafka.count() == Counter(message["topic"] for message in wanted["messages"])["GoldOrders"]


def test_filters_narrow_what_is_read(spark: Any, unpacked: Callable[[str], Path]) -> None:
    everything = read(spark, unpacked("1a_clean")).collect()
    middle = everything[len(everything) // 2].storeTimestamp
    cases: list[tuple[str, Callable[[Any], bool]]] = [
        (
            "topic = 'GoldOrders' and queueId in (1, 3) and queueOffset >= 50 and queueOffset < 60",
            lambda row: row.topic == "GoldOrders" and row.queueId in (1, 3) and 50 <= row.queueOffset < 60,
        ),
        (f"storeTimestamp >= '{middle}'", lambda row: row.storeTimestamp >= middle),
        (f"storeTimestamp = '{middle}'", lambda row: row.storeTimestamp == middle),
        (
            "physicalOffset > 1000000 and physicalOffset <= 2000000",
            lambda row: 1_000_000 < row.physicalOffset <= 2_000_000,
        ),
    ]
    for condition, holds in cases:
        table = read(spark, unpacked("1a_clean"), pushDownFilters="true")
        found = sorted(row.physicalOffset for row in table.where(condition).select("physicalOffset").collect())
        assert found == sorted(row.physicalOffset for row in everything if holds(row)) != []


def test_queries_of_one_frame_do_not_change_each_other(spark: Any, unpacked: Callable[[str], Path]) -> None:
    table = read(spark, unpacked("1a_clean"))
    counts = Counter(row.queueId for row in table.collect())
    one, two = table.where("queueId = 1"), table.where("queueId = 2")
    assert one.count() == counts[1] != counts[2]
    assert table.count() == sum(counts.values())
    both = one.union(two).groupBy("queueId").count().collect()
    assert {row["queueId"]: row["count"] for row in both} == {1: counts[1], 2: counts[2]}


def test_damage_is_data_loss_or_skipped(
    spark: Any, unpacked: Callable[[str], Path], expected: Callable[[str], Any]
) -> None:
    name = "c05_flip_magic_second_last_file"
    with pytest.raises(Exception, match=r"physical offset 243147: bytes that are not a record.*failOnDataLoss=false"):
        read(spark, unpacked(name)).collect()
    recovered = read(spark, unpacked(name), logEnd="recovered").count()
    assert recovered == len(expected(name)["messages"])
    assert read(spark, unpacked(name), failOnDataLoss="false").count() > recovered


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({"rowFormat": "avro"}, None, "option rowFormat: 'avro' is not one of rocketmq, kafka"),
        ({}, "body string", "schema: column 'body' is binary, not string"),
        ({"path": "/nonexistent"}, None, "option path: no commit log files in /nonexistent/commitlog"),
    ],
)
def test_errors_are_one_clear_line(
    spark: Any, unpacked: Callable[[str], Path], options: dict[str, str], schema: str | None, message: str
) -> None:
    from triomq.spark.jobs.session import one_line

    path = options.pop("path", str(unpacked("1a_clean")))
    reader = spark.read.format("rocketmq-store").options(**options)
    reader = reader.schema(schema) if schema else reader
    with pytest.raises(Exception) as raised:
        reader.load(path).collect()
    assert one_line(raised.value) == message


def test_spark_finds_the_formats_by_itself(spark: Any, unpacked: Callable[[str], Path]) -> None:
    """In a session without any registration."""
    fresh = spark.newSession()
    assert read(fresh, unpacked("1a_clean"), subscribe="GoldOrders").select("topic").distinct().collect()
    with pytest.raises(Exception, match="option subscribe: give exactly one of"):
        fresh.read.format("rocketmq").option("nameServer", "127.0.0.1:1").load().collect()
    pushing = fresh.read.format("rocketmq-store").option("pushDownFilters", "true")
    fresh.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    assert pushing.load(str(unpacked("1a_clean"))).where("physicalOffset = 0").count() == 1


def test_audit_tells_sound_from_damaged(
    spark: Any, unpacked: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from triomq.spark.jobs import main

    def audit(root: Path) -> tuple[int, Any, str]:
        words = ["audit", str(root), "--quiet", "--json", str(tmp_path / "found.json")]
        code = main.run([*words, "--html", str(tmp_path / "page.html")])
        return code, json.loads((tmp_path / "found.json").read_text()), capsys.readouterr().out

    code, result, text = audit(unpacked("1a_clean"))
    assert (code, result["is_sound"]) == (0, True)
    assert text.startswith(f"store {unpacked('1a_clean')}: sound\n")
    assert result["counts"] == {
        "segments": 4,
        "records": 1977,
        "bytes": 4059075,
        "queue entries": 1973,
        "index entries": 3867,
        "findings": 1,
        "damage": 0,
    }
    # one queue has lost its last entries; a log file in the middle is missing, and a bit of a body is flipped
    root = tmp_path / "store"
    shutil.copytree(unpacked("c17_cq_short"), root)
    log = sorted((root / "commitlog").iterdir())
    log[1].unlink()
    data = bytearray(log[0].read_bytes())
    data[100] ^= 1
    log[0].write_bytes(data)
    # in another queue: a wrong size, a wrong tags code, two swapped entries, one that points to a dead letter
    file = root / "consumequeue" / "GoldBatch" / "1" / f"{0:020d}"
    entries = [list(entry) for entry in ENTRY.iter_unpack(file.read_bytes())]
    entries[1][1] += 1
    entries[2][2] += 1
    entries[3], entries[4] = entries[4], entries[3]
    entries[12][:2] = [307282, 407]
    file.write_bytes(b"".join(ENTRY.pack(*entry) for entry in entries))
    code, result, text = audit(root)
    assert (code, result["is_sound"]) == (1, False)
    damage = {f"{item['area']}: {item['kind']}": item["count"] for item in result["findings"]}
    assert (damage["log: body CRC"], damage["log: missing file"], damage["queue: entry missing"]) == (1, 1, 4)
    assert damage["queue: dangling"] > 0 and damage["index: dangling"] > 0
    kinds = ("wrong size", "tags code", "order", "gap", "wrong queue")
    assert [damage[f"queue: {kind}"] for kind in kinds] == [1, 1, 1, 2, 1]
    assert "GoldBatch/1: queue offset 12 points to a record of %DLQ%GID_Gold_retry/0" in text
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "<svg" in page and "damaged" in page


def test_rebuilt_queues_are_the_brokers_own_bytes(spark: Any, unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    from triomq.spark.jobs.rebuild import rebuild
    from triomq.spark.jobs.store_tables import StoreFacts

    root = unpacked("1a_clean")
    counts = rebuild(spark, StoreFacts.of(str(root)), str(tmp_path), [], with_index=True)
    assert counts == {"entries": 1977, "keys": 3867}

    def files(base: Path) -> dict[str, bytes]:
        return {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}

    made = files(tmp_path / "consumequeue")
    # the log still has a topic that was deleted at the broker
    assert {name for name in made if name.startswith("GoldGone/")} == {"GoldGone/0/00000000000000000000"}
    made.pop("GoldGone/0/00000000000000000000")
    assert made == files(root / "consumequeue")
    assert sorted(files(tmp_path / "index").values()) == sorted(files(root / "index").values())
