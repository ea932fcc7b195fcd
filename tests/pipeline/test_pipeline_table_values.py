"""`mqpipeline table --value json`: columns from bodies, and the table of dead rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st
from tables_kept import FORMATS, create, keep, places, rows, said, send_bodies

from triomq.pipeline.tables.values import Unfit, fitted, json_object, new_columns
from triomq.testing import LocalCluster

formats = pytest.mark.parametrize("kind", FORMATS)

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "A", "b", "topic", "x y", ""]) | st.text(max_size=3), JSON_VALUES)


def dead_rows(folder: Path, topic: str, kind: str) -> Any:
    if kind == "iceberg":
        return rows(folder, f"{topic}_dead", kind)
    return rows(folder.with_name(f"{folder.name}_dead"), topic, kind)


@formats
def test_fields_are_columns_and_what_does_not_fit_is_dead(
    shop: LocalCluster, tmp_path: Path, kind: str, capsys: Any
) -> None:
    topic, folder = f"Json{kind}", tmp_path / "t"
    create(shop, topic, 1)
    bodies = [b'{"id": 1, "price": 2, "who": {"name": "Li"}}', b'{"id": 2, "price": 2.5, "topic": "mine"}']
    send_bodies(shop, topic, [*bodies, b"\xff", b'{"id": "three"}'])
    assert keep(shop, topic, folder, kind, "--value", "json") == 0
    out, err = said(capsys)
    where = folder if kind == "iceberg" else f"{folder}_dead"
    assert (out, err) == (f"2 rows committed to {folder}, 2 dead rows to {where}\n", "")
    first, second = rows(folder, topic, kind).sort_by("queueOffset").to_pylist()
    assert "body" not in first
    assert (first["id"], first["price"], first["who"], first["value_topic"]) == (1, 2.0, '{"name": "Li"}', None)
    assert (second["id"], second["price"], second["who"], second["value_topic"]) == (2, 2.5, None, "mine")
    dead = dead_rows(folder, topic, kind).sort_by("queueOffset").to_pylist()
    assert [(row["queueOffset"], row["body"]) for row in dead] == [(2, b"\xff"), (3, b'{"id": "three"}')]
    assert dead[0]["reason"].startswith("not JSON: ") and dead[1]["reason"] == "field 'id': 'three' is not bigint"
    # A new field is a new column, and the types stay what they were.
    send_bodies(shop, topic, [b'{"id": 5, "new": true}', b'{"id": 1.5}'])
    assert keep(shop, topic, folder, kind, "--value", "json") == 0
    found = rows_of_all_files(folder, topic, kind)
    assert [(row["queueOffset"], row.get("new")) for row in found] == [(0, None), (1, None), (4, True)]
    assert places(dead_rows(folder, topic, kind)) == [(0, 2), (0, 3), (0, 5)]
    # With whole bodies it would be another table.
    capsys.readouterr()
    assert keep(shop, topic, folder, kind) == 2
    assert "it is a table of another schema: it has no column 'body'" in capsys.readouterr().err


def rows_of_all_files(folder: Path, topic: str, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows(folder, topic, kind).to_pylist()
    return sorted(found, key=lambda row: int(row["queueOffset"]))


@formats
def test_a_kill_between_the_two_tables_repeats_no_dead_row(
    shop: LocalCluster, tmp_path: Path, kind: str, monkeypatch: Any
) -> None:
    from triomq.pipeline.tables import shapes

    topic, folder = f"Between{kind}", tmp_path / "t"
    create(shop, topic, 1)
    send_bodies(shop, topic, [b'{"id": 1}', b"dead", b'{"id": 2}', b'{"id": "dead"}', b'{"id": 4}'])
    bury = shapes.ValueRows._bury

    def killed(self: Any, *given: Any) -> None:
        bury(self, *given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shapes.ValueRows, "_bury", killed)
        with pytest.raises(KeyboardInterrupt):
            keep(shop, topic, folder, kind, "--value", "json", "--commit-rows", "4")
    assert places(dead_rows(folder, topic, kind)) == [(0, 1), (0, 3)]
    send_bodies(shop, topic, [b"dead"])
    for limit in ("1", "3"):  # cut otherwise than before
        assert keep(shop, topic, folder, kind, "--value", "json", "--commit-rows", limit) == 0
    assert places(rows(folder, topic, kind)) == [(0, 0), (0, 2), (0, 4)]
    assert places(dead_rows(folder, topic, kind)) == [(0, 1), (0, 3), (0, 5)]


def test_a_schema_file_gives_the_types(shop: LocalCluster, tmp_path: Path, capsys: Any) -> None:
    create(shop, "Given", 1)
    send_bodies(shop, "Given", [b'{"at": "2026-03-01T12:00:00+01:00", "n": 1}', b'{"at": "soon"}'])
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"at": "timestamp", "n": "double"}))
    value = ("--value", "json", "--schema", str(schema))
    assert keep(shop, "Given", tmp_path / "t", "delta", *value) == 0
    (row,) = rows(tmp_path / "t", "Given", "delta").to_pylist()
    assert (row["at"], row["n"]) == (datetime(2026, 3, 1, 11, tzinfo=UTC), 1.0)
    (dead,) = dead_rows(tmp_path / "t", "Given", "delta").to_pylist()
    assert dead["reason"] == "field 'at': 'soon' is not timestamp"
    capsys.readouterr()
    for text, message in (
        ('{"at": "string"}', "--to: it is a table of another schema: its column 'at' is timestamp, not string"),
        ('{"at": "text"}', f"--schema {schema}: column 'at': 'text' is none of string, bigint, double, boolean"),
        ("[", f"--schema {schema}: not JSON"),
    ):
        schema.write_text(text)
        assert keep(shop, "Given", tmp_path / "t", "delta", *value) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"mqpipeline table: {message}") and err.count("\n") == 1
    assert keep(shop, "Given", tmp_path / "t", "delta", "--schema", "x") == 2
    assert capsys.readouterr().err == "mqpipeline table: --schema and --dead need --value\n"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON: "),
        (b"[1]", "JSON, but not an object"),
        (b'{"a": NaN}', "not JSON: NaN is not JSON"),
        (b"[" * 100_000, "not JSON: "),
    ],
)
def test_bodies_that_are_no_objects(body: bytes, reason: str) -> None:
    with pytest.raises(Unfit) as caught:
        json_object(body)
    assert str(caught.value).startswith(reason)


@given(st.lists(OBJECTS, max_size=8), st.integers(0, 8))
def test_what_is_dead_does_not_depend_on_where_commits_are_cut(objects: list[dict[str, Any]], cut: int) -> None:
    """A part of a range is committed first, and read again with what follows."""

    def verdicts(some: list[dict[str, Any]], pinned: dict[str, str]) -> list[object]:
        found: list[object] = []
        for fields in some:
            try:
                found.append(fitted(fields, pinned))
            except Unfit as error:
                found.append(str(error))
        return found

    begin = objects[:cut]
    first = new_columns(begin, {})
    later = first | new_columns(objects, first)
    assert verdicts(begin, first) == verdicts(begin, later)


@given(st.lists(OBJECTS, max_size=8))
def test_whatever_json_says_makes_columns(objects: list[dict[str, Any]]) -> None:
    from triomq.pipeline.tables.values import arrow_columns

    pinned = new_columns(objects, {})
    kept = []
    for fields in objects:
        try:
            kept.append(fitted(json_object(json.dumps(fields).encode()), pinned))
        except Unfit:
            continue
    assert all(len(column) == len(kept) for column in arrow_columns(kept, pinned))


def test_avro_bodies_are_columns(shop: LocalCluster, tmp_path: Path, capsys: Any) -> None:
    fields = [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
    ]
    schema = {"type": "record", "name": "Order", "fields": fields}
    (tmp_path / "order.avsc").write_text(json.dumps(schema))
    body = BytesIO()
    at = datetime(2026, 3, 1, tzinfo=UTC)
    fastavro.schemaless_writer(body, schema, {"id": 7, "at": at, "price": Decimal("1.25")})
    create(shop, "Avro", 1)
    send_bodies(shop, "Avro", [body.getvalue(), body.getvalue() + b"!", b"?"])
    value = ("--value", "avro", "--schema", str(tmp_path / "order.avsc"))
    assert keep(shop, "Avro", tmp_path / "t", "iceberg", *value) == 0
    (row,) = rows(tmp_path / "t", "Avro", "iceberg").to_pylist()
    assert (row["id"], row["at"], row["price"]) == (7, at, "1.25")
    reasons = [row["reason"] for row in dead_rows(tmp_path / "t", "Avro", "iceberg").to_pylist()]
    assert sorted(reasons)[0] == "not Avro of this schema: 1 bytes behind it" and len(reasons) == 2
    capsys.readouterr()
    assert keep(shop, "Avro", tmp_path / "t", "iceberg", "--value", "avro") == 2
    assert said(capsys)[1] == "mqpipeline table: --value avro needs --schema FILE\n"
    (tmp_path / "order.avsc").write_text('{"type": "none"}')
    assert keep(shop, "Avro", tmp_path / "t", "iceberg", *value) == 2
    assert "not an Avro schema" in said(capsys)[1]


def test_protobuf_bodies_are_columns(shop: LocalCluster, tmp_path: Path, capsys: Any) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    kind = file.message_type.add(name="Order")
    for number, (name, type_) in enumerate((("id", 3), ("who", 9), ("raw", 12), ("paid", 8)), 1):
        kind.field.add(name=name, number=number, type=type_, label=1)
    path = tmp_path / "order.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    create(shop, "Proto", 1)
    whole = order(id=2**40, who="Li", raw=b"\xff", paid=True).SerializeToString()
    send_bodies(shop, "Proto", [whole, order(id=0, who="Wu").SerializeToString(), b"\xff"])
    value = ("--value", "protobuf", "--schema", str(path))
    assert keep(shop, "Proto", tmp_path / "t", "delta", *value, "--message", "shop.Order") == 0
    found = rows(tmp_path / "t", "Proto", "delta").sort_by("queueOffset").to_pylist()
    assert [(row["id"], row["who"], row["raw"], row["paid"]) for row in found] == [
        (2**40, "Li", b"\xff", True),
        (0, "Wu", b"", False),
    ]
    assert [row["reason"] for row in dead_rows(tmp_path / "t", "Proto", "delta").to_pylist()] == [
        "not a message shop.Order: DecodeError"
    ]
    capsys.readouterr()
    assert keep(shop, "Proto", tmp_path / "t", "delta", *value, "--message", "shop.Bill") == 2
    assert said(capsys)[1] == f"mqpipeline table: --message shop.Bill: not in {path}\n"
    assert keep(shop, "Proto", tmp_path / "t", "delta", *value) == 2
    assert said(capsys)[1] == "mqpipeline table: --value protobuf and --message need each other\n"
