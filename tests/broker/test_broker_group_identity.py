"""A broker starts only on the ledger that is its own: of its group, and of its id."""

from __future__ import annotations

import os
from errno import EIO
from pathlib import Path

import pytest
import trio
from broker_whole import ANSWER_SECONDS, WholeBroker, whole_broker
from free_ports import free_port

from triomq.daemon.errors import StartError
from triomq.protocol.codes import ResponseCode
from triomq.store.__main__ import main
from triomq.store.disk.files import Files
from triomq.store.disk.ledgers import ledgers_in

SIZES = "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=60000\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n"


def alone(member: str = "n0", group: str = "G") -> dict[str, str]:
    """The settings of a group of one."""
    peers = f"{member}-127.0.0.1:{free_port()}"
    return {"enableDLegerCommitLog": "true", "dLegerGroup": group, "dLegerSelfId": member, "dLegerPeers": peers}


async def until_sent(broker: WholeBroker, body: bytes) -> int:
    """Return the queue offset of a message."""
    with trio.fail_after(ANSWER_SECONDS):
        while (response := await broker.send("T", body=body)).code != ResponseCode.SUCCESS:  # noqa: ASYNC110 (over TCP)
            await trio.sleep(0.02)
    return int((response.ext_fields or {})["queueOffset"])


async def is_continued(home: Path, **settings: str) -> bool:
    """Start a broker on a store with one message, and return whether the next one comes behind it."""
    async with whole_broker(home, **settings) as broker:
        return await until_sent(broker, b"next") == 1


async def member_store(home: Path, **changes: str) -> None:
    """Leave the store of a member, in home/store, with one message."""
    async with whole_broker(home, **alone(), **changes) as broker:
        assert await until_sent(broker, b"first") == 0


def picture(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes()[:4096] if path.is_file() else b"" for path in sorted(root.rglob("*"))}


async def refusal(home: Path, **settings: str) -> str:
    """Return why a broker does not start. It must change nothing."""
    before = picture(home)
    with pytest.raises(BaseExceptionGroup) as raised:
        async with whole_broker(home, **settings):
            pass
    errors = [raised.value.exceptions[0]]
    while isinstance(errors[-1], BaseExceptionGroup):
        errors.append(errors[-1].exceptions[0])
    assert isinstance(errors[-1], StartError)
    assert picture(home) == before
    return str(errors[-1])


async def test_a_member_refuses_the_ledger_of_another_member_and_changes_nothing(tmp_path: Path) -> None:
    await member_store(tmp_path)
    text = await refusal(tmp_path, **alone("n1"))
    assert f"{tmp_path}/store has the ledger of n0 (dledger-n0), and none of n1" in text
    assert "Set dLegerSelfId=n0" in text
    assert await is_continued(tmp_path, **alone())


async def test_a_member_whose_log_lies_elsewhere_refuses_the_ledger_of_another_member(tmp_path: Path) -> None:
    await member_store(tmp_path, storePathDLedgerCommitLog=f"{tmp_path}/log0")
    assert "has the ledger of n0" in await refusal(
        tmp_path, **alone("n1"), storePathDLedgerCommitLog=f"{tmp_path}/log1"
    )


async def test_a_member_refuses_the_ledger_of_another_group_and_of_a_renamed_directory(tmp_path: Path) -> None:
    await member_store(tmp_path)
    text = await refusal(tmp_path, **alone(group="H"))
    assert f"{tmp_path}/store/dledger-n0 is the ledger of n0 of the group G, and this broker is n0 of H" in text
    os.rename(tmp_path / "store" / "dledger-n0", tmp_path / "store" / "dledger-n1")
    text = await refusal(tmp_path, **alone("n1"))
    assert "is the ledger of n0 of the group G, and this broker is n1 of G" in text
    assert f"remove {tmp_path}/store/dledger-n1/identity" in text
    (tmp_path / "store" / "dledger-n1" / "identity").unlink()
    assert await is_continued(tmp_path, **alone("n1", group="H"))


async def test_a_ledger_that_says_nothing_of_its_member_is_taken_over_by_the_name_of_its_directory(
    tmp_path: Path,
) -> None:
    await member_store(tmp_path)
    (tmp_path / "store" / "dledger-n0" / "identity").unlink()
    os.rename(tmp_path / "store" / "dledger-n0", tmp_path / "store" / "dledger-n7")
    assert await is_continued(tmp_path, **alone("n7"))
    assert (tmp_path / "store" / "dledger-n7" / "identity").read_text() == "group=G\nmember=n7\n"


async def test_a_member_starts_beside_a_ledger_that_another_one_has_left(tmp_path: Path) -> None:
    await member_store(tmp_path)
    old = tmp_path / "store" / "dledger-n1" / "data"
    old.mkdir(parents=True)
    (old / f"{0:020d}").write_bytes(bytes(64))
    assert ledgers_in(Files(), str(tmp_path / "store")) == ["n0", "n1"]
    assert await is_continued(tmp_path, **alone())


async def test_a_plain_broker_refuses_the_store_of_a_member(tmp_path: Path) -> None:
    await member_store(tmp_path)
    (tmp_path / "store" / "commitlog").mkdir(exist_ok=True)
    text = await refusal(tmp_path)
    assert f"{tmp_path}/store has the ledger of n0" in text and "enableDLegerCommitLog is not true" in text


async def test_verify_names_a_ledger_that_is_not_that_of_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await member_store(tmp_path)
    configuration = tmp_path / "member.conf"

    def verify(**settings: str) -> tuple[int, str]:
        configuration.write_text(SIZES + "".join(f"{key}={value}\n" for key, value in settings.items()))
        code = main(["verify", str(tmp_path / "store"), "-c", str(configuration)])
        return code, "".join(capsys.readouterr())

    assert verify(**alone())[0] == 0
    code, text = verify(**alone(group="H"))
    assert code == 1 and "PROBLEM" in text and "is the ledger of n0 of the group G" in text
    code, text = verify(**alone("n1"))
    assert code == 2 and "dledger-n1 does not exist" in text and "There is dledger-n0" in text


async def test_a_start_that_fails_behind_its_store_lets_go_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(EIO, "the disk has gone")

    settings = alone()
    with monkeypatch.context() as patched:
        patched.setattr("triomq.broker.group.log.note_identity", fail)
        with pytest.RaisesGroup(pytest.RaisesExc(OSError), flatten_subgroups=True):
            async with whole_broker(tmp_path, **settings):
                pass
    async with whole_broker(tmp_path, **settings) as broker:
        assert await until_sent(broker, b"first") == 0
