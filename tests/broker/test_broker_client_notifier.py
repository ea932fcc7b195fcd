from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import trio
import trio.testing
from broker_fakes import FakeConnection
from fake_clock import FakeClock
from golden_data import golden_frames
from msgspec.structs import replace
from trio.testing import MockClock

from triomq.broker.client_notifier import ClientNotifier
from triomq.broker.configuration import Configuration
from triomq.broker.tables.client_channel import ClientChannel
from triomq.broker.tables.consumers import ConsumerTable, Consumption
from triomq.protocol.command import RPC_ONEWAY
from triomq.protocol.frame import FrameDecoder, encode_frame
from triomq.protocol.headers.client import NotifyConsumerIdsChangedRequestHeader
from triomq.protocol.headers.transaction import CheckTransactionStateRequestHeader


@pytest.fixture
def configuration() -> Configuration:
    return Configuration.from_values({})


@pytest.fixture
async def notifier(configuration: Configuration) -> AsyncIterator[ClientNotifier]:
    notifier = ClientNotifier(configuration)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(notifier.run)
        await trio.testing.wait_all_tasks_blocked()
        yield notifier
        nursery.cancel_scope.cancel()


def member(connection: FakeConnection, number: int = 0) -> ClientChannel:
    return ClientChannel(cast(Any, connection), f"client-{number}", 0, 407, 0)


def members(count: int) -> list[ClientChannel]:
    return [member(FakeConnection(f"10.0.0.1:{number + 1}"), number) for number in range(count)]


def notices(channel: ClientChannel) -> int:
    return len(cast(FakeConnection, channel.connection).oneways)


async def test_members_are_told_at_once(notifier: ClientNotifier, autojump_clock: MockClock) -> None:
    two = members(2)
    notifier.consumer_ids_changed("G", two)
    (notice,) = cast(FakeConnection, two[1].connection).oneways
    assert notice.code == 40
    assert notice.flag & RPC_ONEWAY
    assert notice.ext_fields == {"consumerGroup": "G"}
    await trio.sleep(60)
    assert [notices(channel) for channel in two] == [1, 1], "and only once"


async def test_changes_while_a_group_rests_are_told_once(notifier: ClientNotifier, autojump_clock: MockClock) -> None:
    everybody = members(1000)
    for count in range(1, 1001):
        notifier.consumer_ids_changed("G", everybody[:count])
    assert sum(map(notices, everybody)) == 1
    await trio.sleep(5)
    assert [notices(channel) for channel in everybody] == [2] + [1] * 999, "2 + 999 frames instead of 500,500"


async def test_who_left_meanwhile_is_not_told(notifier: ClientNotifier, autojump_clock: MockClock) -> None:
    three = members(3)
    notifier.consumer_ids_changed("G", three)
    notifier.consumer_ids_changed("G", three[:2])
    await trio.sleep(5)
    assert [notices(channel) for channel in three] == [2, 2, 1]


async def test_each_group_rests_for_itself(notifier: ClientNotifier, autojump_clock: MockClock) -> None:
    first, second = members(1), members(1)
    notifier.consumer_ids_changed("G", first)
    notifier.consumer_ids_changed("H", second)
    assert (notices(first[0]), notices(second[0])) == (1, 1)
    await trio.sleep(1)
    notifier.consumer_ids_changed("G", first)
    assert notices(first[0]) == 2, "rested"


async def test_a_large_group_is_told_in_pieces(notifier: ClientNotifier, autojump_clock: MockClock) -> None:
    everybody = members(250)
    notifier.consumer_ids_changed("G", everybody)
    assert sum(map(notices, everybody)) == 0, "not in the turn that brought the change"
    await trio.testing.wait_all_tasks_blocked()
    assert sum(map(notices, everybody)) == 250


async def test_a_closed_connection_costs_nothing_and_a_full_one_does_not_stop_others(
    notifier: ClientNotifier, autojump_clock: MockClock
) -> None:
    three = members(3)
    cast(FakeConnection, three[0].connection).close("gone")
    cast(Any, three[1].connection).send_oneway = lambda command: False
    notifier.consumer_ids_changed("G", three)
    assert [notices(channel) for channel in three] == [0, 0, 1]


def test_nothing_is_told_when_it_is_switched_off(configuration: Configuration) -> None:
    configuration.broker = replace(configuration.broker, notify_consumer_ids_changed_enable=False)
    two = members(2)
    ClientNotifier(configuration).consumer_ids_changed("G", two)
    assert [notices(channel) for channel in two] == [0, 0]


def test_it_fits_the_consumer_table(configuration: Configuration) -> None:
    notifier = ClientNotifier(configuration)
    table = ConsumerTable(FakeClock(), on_change=notifier.consumer_ids_changed)
    connections = [FakeConnection("10.0.0.1:1"), FakeConnection("10.0.0.1:2")]
    for connection in connections:
        table.register(
            "G",
            cast(Any, connection),
            connection.remote.text,
            0,
            407,
            Consumption(),
            [],
        )
    assert [len(connection.oneways) for connection in connections] == [2, 1]
    table.leave(cast(Any, connections[0]), 1000)
    assert [len(connection.oneways) for connection in connections] == [2, 2]


def test_the_notice_is_the_real_brokers(configuration: Configuration) -> None:
    for file in ("clients_json", "clients_rocketmq"):
        for frame in golden_frames(file, code_name="NOTIFY_CONSUMER_IDS_CHANGED"):
            data = bytes.fromhex(frame["frame_hex"])
            (real,) = FrameDecoder().feed(data)
            group = real.header(NotifyConsumerIdsChangedRequestHeader).consumer_group
            told = member(FakeConnection())
            ClientNotifier(configuration).consumer_ids_changed(group, [told])
            (ours,) = cast(FakeConnection, told.connection).oneways
            ours.opaque, ours.serialize_type = real.opaque, real.serialize_type
            ours.flag |= RPC_ONEWAY
            assert encode_frame(ours) == data


def test_a_check_carries_the_half_message(configuration: Configuration) -> None:
    producer = member(FakeConnection())
    header = CheckTransactionStateRequestHeader(tran_state_table_offset=1, commit_log_offset=2)
    assert ClientNotifier(configuration).check_transaction(producer, header, b"record")
    (check,) = cast(FakeConnection, producer.connection).oneways
    assert (check.code, check.body) == (39, b"record")
    cast(FakeConnection, producer.connection).close("gone")
    assert not ClientNotifier(configuration).check_transaction(producer, header, b"record")
