"""The settings of a server: which of them RocketMQ has, and what is off unless somebody asks for it."""

from __future__ import annotations

from triomq.protocol.settings import declarations
from triomq.remoting.config import ServerSettings


def test_a_key_that_rocketmq_does_not_have_is_declared_as_an_own_one() -> None:
    shared = {declared.key for declared in declarations(ServerSettings) if not (declared.own or declared.ignored)}
    system_properties = {"frameMaxLength"}  # com.rocketmq.remoting.frameMaxLength
    assert shared - system_properties == {
        "listenPort",
        "serverAsyncSemaphoreValue",
        "serverChannelMaxIdleTimeSeconds",
        "serverOnewaySemaphoreValue",
        "serverSocketBacklog",
        "serverSocketRcvBufSize",
        "serverSocketSndBufSize",
        "writeBufferHighWaterMark",
        "writeBufferLowWaterMark",
    }


def test_a_server_has_no_port_for_metrics_unless_one_is_set() -> None:
    assert ServerSettings().metrics_port == 0
