"""Settings of both ends of a connection, under RocketMQ's keys (RocketMQ: NettyServerConfig, NettyClientConfig).

Keys that only size Netty's threads and buffers are accepted and listed but have no effect: one task serves all sockets.
"""

from __future__ import annotations

import os

from triomq.protocol.settings import SettingsRecord, changeable_setting, ignored_setting, setting


def _cpus() -> int:
    return os.cpu_count() or 1


class ServerSettings(SettingsRecord, frozen=True, kw_only=True):
    """Settings of a server (RocketMQ: NettyServerConfig)."""

    listen_port: int = setting(
        "listenPort", 8888, meaning="TCP port; 0 takes any free one", minimum=0, maximum=65535, important=True
    )
    bind_address: str = setting("bindAddress", "", meaning="address to listen on; empty = all", own=True)
    server_worker_threads: int = ignored_setting(
        "serverWorkerThreads", 8, meaning="no effect: one task serves all sockets"
    )
    server_callback_executor_threads: int = ignored_setting("serverCallbackExecutorThreads", 0)
    server_selector_threads: int = ignored_setting("serverSelectorThreads", 3)
    oneway_limit: int = changeable_setting(
        "serverOnewaySemaphoreValue", 256, meaning="one-way requests in flight to peers"
    )
    async_limit: int = changeable_setting(
        "serverAsyncSemaphoreValue", 64, meaning="requests in flight to peers", minimum=1
    )
    idle_seconds: int = changeable_setting(
        "serverChannelMaxIdleTimeSeconds", 120, meaning="a connection idle for this long is closed", minimum=1
    )
    send_buffer_bytes: int = changeable_setting(
        "serverSocketSndBufSize", 0, meaning="0 = the system's default", minimum=0
    )
    receive_buffer_bytes: int = changeable_setting(
        "serverSocketRcvBufSize", 0, meaning="0 = the system's default", minimum=0
    )
    write_high_water_bytes: int = changeable_setting(
        "writeBufferHighWaterMark", 0, meaning="bytes not yet sent at which reading stops; 0 = 4 MiB", minimum=0
    )
    write_low_water_bytes: int = changeable_setting(
        "writeBufferLowWaterMark", 0, meaning="bytes not yet sent at which reading resumes; 0 = a quarter", minimum=0
    )
    backlog: int = changeable_setting(
        "serverSocketBacklog", 1024, meaning="connections the system may hold unaccepted", minimum=1
    )
    pooled_allocator: bool = ignored_setting("serverPooledByteBufAllocatorEnable", True)
    use_epoll_native_selector: bool = ignored_setting(
        "useEpollNativeSelector", False, meaning="no effect: epoll is used where there is one"
    )
    max_connections: int = setting(
        "serverMaxConnections",
        50_000,
        meaning="most connections, counted from accept; the oldest that has sent no whole frame makes room for a new "
        "one, else the new one is closed",
        minimum=1,
        own=True,
    )
    max_connections_per_address: int = setting(
        "serverMaxConnectionsPerAddress",
        0,
        meaning="most connections from one address, or from one IPv6 /64 network; 0 = half of all",
        minimum=0,
        own=True,
    )
    reserved_descriptors: int = setting(
        "serverReservedDescriptors",
        5_000,
        meaning="file descriptors that connections never take, for store files, logs and outgoing connections; at most "
        "half of the process's limit",
        minimum=0,
        own=True,
    )
    silent_seconds: int = setting(
        "serverSilentSeconds",
        20,
        meaning="a connection that sends nothing at all for this long after it was accepted is closed",
        minimum=1,
        own=True,
    )
    max_request_bytes: int = setting(
        "maxRequestBytes",
        0,
        meaning="bytes that all clients together can make the process hold: tables, frames being read, waiting "
        "requests, responses not taken, parked pulls; at least 64 MiB; 0 = an eighth of the memory of the machine or "
        "its control group, at least 128 MiB and at most 2 GiB",
        minimum=0,
        own=True,
    )
    max_frame_bytes: int = setting("frameMaxLength", 16 * 1024 * 1024, meaning="largest frame in bytes", minimum=1024)
    metrics_port: int = setting(
        "metricsPort",
        0,
        meaning="TCP port of the pages /metrics, /health/live and /health/ready; 0 = none",
        minimum=0,
        maximum=65535,
        own=True,
    )
    metrics_address: str = setting(
        "metricsAddress",
        "127.0.0.1",
        meaning="address that metricsPort listens on; its pages have no login; empty = all",
        own=True,
    )
    metrics_max_series: int = setting(
        "metricsMaxSeries",
        10_000,
        meaning="most series of one metric in a scrape; triomq_series_dropped_total counts what is left out",
        minimum=1,
        own=True,
    )
    dashboard_port: int = setting(
        "dashboardPort", 0, meaning="TCP port of the dashboard; 0 = none", minimum=0, maximum=65535, own=True
    )
    dashboard_address: str = setting(
        "dashboardAddress",
        "127.0.0.1",
        meaning="address that dashboardPort listens on; empty = all. One that other machines reach needs aclEnable and "
        "dashboardTls, or dashboardInsecure",
        own=True,
    )
    dashboard_hosts: str = setting(
        "dashboardHosts",
        "",
        meaning="names, separated by commas, under which browsers reach the dashboard, besides localhost and addresses",
        own=True,
    )
    dashboard_path: str = setting(
        "dashboardPath",
        "",
        meaning="path below which a proxy shows the dashboard, /name; empty = the root",
        own=True,
    )
    dashboard_proxies: str = setting(
        "dashboardProxies",
        "",
        meaning="addresses and networks, separated by commas, of proxies whose X-Forwarded-For and X-Forwarded-Proto "
        "count for the dashboard; empty = nobody's",
        own=True,
    )
    dashboard_tls: bool = setting(
        "dashboardTls", False, meaning="serve the dashboard over HTTPS with tls.server.certPath", own=True
    )
    dashboard_insecure: bool = setting(
        "dashboardInsecure",
        False,
        meaning="let the dashboard listen for other machines without login or TLS",
        own=True,
    )
    dashboard_read_only: bool = setting(
        "dashboardReadOnly",
        True,
        meaning="the dashboard changes nothing; false: administrators may, with their account, or with the token in "
        "dashboard.token of the store if there are no accounts",
        own=True,
    )


class ClientSettings(SettingsRecord, frozen=True, kw_only=True):
    """Settings of a client (RocketMQ: NettyClientConfig)."""

    client_worker_threads: int = ignored_setting("clientWorkerThreads", 4)
    client_callback_executor_threads: int = ignored_setting("clientCallbackExecutorThreads", _cpus)
    oneway_limit: int = changeable_setting(
        "clientOnewaySemaphoreValue", 65535, meaning="one-way requests in flight", minimum=1
    )
    async_limit: int = changeable_setting(
        "clientAsyncSemaphoreValue", 65535, meaning="unanswered requests per connection", minimum=1
    )
    connect_timeout_ms: int = changeable_setting(
        "connectTimeoutMillis", 3000, meaning="time limit of a connect", minimum=1
    )
    channel_not_active_interval_ms: int = ignored_setting("channelNotActiveInterval", 60_000)
    idle_seconds: int = changeable_setting(
        "clientChannelMaxIdleTimeSeconds", 120, meaning="a connection idle for this long is closed", minimum=1
    )
    send_buffer_bytes: int = changeable_setting(
        "clientSocketSndBufSize", 0, meaning="0 = the system's default", minimum=0
    )
    receive_buffer_bytes: int = changeable_setting(
        "clientSocketRcvBufSize", 0, meaning="0 = the system's default", minimum=0
    )
    pooled_allocator: bool = ignored_setting("clientPooledByteBufAllocatorEnable", False)
    close_on_timeout: bool = changeable_setting(
        "clientCloseSocketIfTimeout", True, meaning="close the connection when a call on it times out"
    )
    use_tls: bool | None = setting("useTLS", None, meaning="outgoing connections use TLS")
    write_high_water_bytes: int = changeable_setting(
        "writeBufferHighWaterMark", 0, meaning="bytes not yet sent at which calls wait; 0 = 4 MiB", minimum=0
    )
    write_low_water_bytes: int = changeable_setting("writeBufferLowWaterMark", 0, meaning="0 = a quarter", minimum=0)
