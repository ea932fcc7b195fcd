"""Tables whose files are lost or damaged: a broker that would skip messages or repeat them says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_whole import WholeBroker, whole_broker
from structlog.testing import capture_logs

from triomq.daemon.errors import ExitCode, StartError
from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import new_request
from triomq.protocol.findings import INFORMATION, WARNING
from triomq.protocol.runtime_findings import findings_of

TABLES = [
    "topics.json",
    "subscriptionGroup.json",
    "consumerOffset.json",
    "consumerFilter.json",
    "delayOffset.json",
    "queueLocks.json",
    "quotas.json",
    "messageRequestMode.json",
    "copied.json",
]


def damage(root: Path, name: str) -> list[Path]:
    config = root / "store" / "config"
    config.mkdir(parents=True)
    paths = [config / name, config / f"{name}.bak"]
    for path in paths:
        path.write_bytes(b'{"offsetTable":{"T@G":{0:')
    return paths


async def absent(broker: WholeBroker) -> str:
    response = await broker.client.invoke(broker.address, new_request(RequestCode.GET_BROKER_RUNTIME_INFO))
    return KVTable.decode(response.body).table.get("absentTables", "")


@pytest.mark.parametrize("name", TABLES)
async def test_a_table_that_cannot_be_read_ends_the_start_before_anything_is_changed(tmp_path: Path, name: str) -> None:
    paths = damage(tmp_path, name)
    with pytest.raises((StartError, ExceptionGroup)) as caught:
        async with whole_broker(tmp_path):
            pass
    error: BaseException = caught.value
    while isinstance(error, ExceptionGroup):
        [error] = error.exceptions
    assert isinstance(error, StartError) and error.exit_code is ExitCode.REFUSED
    assert all(str(path) in str(error) for path in paths)
    assert "startWithoutUnreadableTables=true" in str(error)
    assert [path.read_bytes()[:1] for path in paths] == [b"{", b"{"]
    assert not {path.name for path in (tmp_path / "store").iterdir()} & {"abort", "checkpoint"}, "nothing recovers"


@pytest.mark.parametrize("name", TABLES)
async def test_an_option_takes_the_loss_and_keeps_the_damaged_files(tmp_path: Path, name: str) -> None:
    paths = damage(tmp_path, name)
    async with whole_broker(tmp_path, startWithoutUnreadableTables="true") as broker:
        await broker.create_topic("T")
        assert (await broker.send("T", b"x")).code == 0
    kept = {path.name for path in paths[0].parent.iterdir()}
    assert kept >= {f"{name}.broken", f"{name}.bak.broken"}


async def test_a_table_that_is_absent_beside_messages_is_found(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        assert await absent(broker) == "", "a new broker has lost nothing"
        await broker.create_topic("T")
        assert (await broker.send("T", b"x")).code == 0
    (tmp_path / "store" / "config" / "topics.json").unlink()
    for path in (tmp_path / "store" / "config").glob("*.bak"):
        path.unlink()
    with capture_logs() as lines:
        async with whole_broker(tmp_path) as broker:
            assert await absent(broker) == "topics.json,subscriptionGroup.json,consumerOffset.json"
    warned = [line["path"] for line in lines if "beside a log" in line["event"]]
    assert warned[0] == str(tmp_path / "store" / "config" / "topics.json")
    async with whole_broker(tmp_path) as broker:
        assert await absent(broker) == "", "they were written meanwhile"


def test_doctor_names_an_absent_table() -> None:
    table = {"absentTables": "topics.json,consumerOffset.json"}
    found = [(each.code, each.severity) for each in findings_of("b", "127.0.0.1:1", table, 0)]
    assert found == [("absent-table", WARNING), ("absent-table", INFORMATION)]
