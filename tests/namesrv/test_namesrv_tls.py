"""A NameServer with TLS: it accepts brokers and clients with a certificate, and takes new certificate files."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from namesrv_fakes import broker_fields, registration
from tls_authority import Authority, needs_openssl

from triomq.daemon.errors import StartError
from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.controller import serve
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import new_request
from triomq.remoting.client import TlsContext, open_client
from triomq.remoting.config import ServerSettings
from triomq.remoting.errors import RemotingError
from triomq.remoting.tls import TlsSettings, client_context

pytestmark = needs_openssl


@asynccontextmanager
async def running(values: dict[str, str], **settings: object) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(
            partial(
                serve,
                NamesrvSettings(**settings),  # type: ignore[arg-type]
                ServerSettings(listen_port=0),
                tls=TlsSettings.from_values(values),
            )
        )
        yield f"127.0.0.1:{port}"
        nursery.cancel_scope.cancel()


def server(directory: Path, authority: Authority, name: str = "namesrv") -> dict[str, str]:
    """Return keys whose files may be replaced."""
    pair = [str(shutil.copyfile(path, directory / Path(path).name)) for path in authority.issue(name)]
    return {
        "tls.test.mode.enable": "false",
        "tls.server.mode": "enforcing",
        "tls.server.certPath": pair[0],
        "tls.server.keyPath": pair[1],
    }


def client(authority: Authority, pair: tuple[str, str] | None = None) -> TlsContext:
    own = {"tls.client.certPath": pair[0], "tls.client.keyPath": pair[1]} if pair else {}
    trust = {"tls.client.authServer": "true", "tls.client.trustCertPath": str(authority.certificate)}
    return client_context(TlsSettings.from_values({"tls.test.mode.enable": "false", **trust, **own}))


async def responds(address: str, context: TlsContext | None) -> bool:
    async with open_client(tls_context=context) as connected:
        try:
            answer = await connected.invoke(address, new_request(RequestCode.GET_BROKER_CLUSTER_INFO), 10)
        except RemotingError:
            return False
        return answer.code == ResponseCode.SUCCESS


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / "ca").mkdir()
    return Authority(tmp_path / "ca")


async def test_only_known_certificates_are_served(tmp_path: Path, authority: Authority) -> None:
    values = {
        **server(tmp_path, authority),
        "tls.server.authClient": "true",
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(authority.certificate),
    }
    async with running(values) as address:
        assert await responds(address, client(authority, authority.issue("broker-a")))
        assert not await responds(address, client(authority))
        assert not await responds(address, None)


async def test_a_protected_route_belongs_to_the_certificate_that_registered_it(
    tmp_path: Path, authority: Authority
) -> None:
    values = {
        **server(tmp_path, authority),
        "tls.server.authClient": "true",
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(authority.certificate),
    }
    fields = {**broker_fields(), "haServerAddr": "10.0.0.1:10912"}
    request = new_request(RequestCode.REGISTER_BROKER, body=registration("T").encode(), ext_fields=fields)
    async with (
        running(values, protect_routes=True) as address,
        open_client(tls_context=client(authority, authority.issue("broker-a"))) as broker,
        open_client(tls_context=client(authority, authority.issue("broker-b"))) as other,
    ):
        assert (await broker.invoke(address, request, 10)).code == ResponseCode.SUCCESS
        refused = await other.invoke(address, request, 10)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "is registered from certificate" in (refused.remark or "")
        assert (await broker.invoke(address, request, 10)).code == ResponseCode.SUCCESS


async def test_new_certificate_files_count_without_a_restart(tmp_path: Path, authority: Authority) -> None:
    other = Authority(tmp_path / "ca", "other")
    values = server(tmp_path, authority)
    async with running(values) as address, open_client(tls_context=client(authority)) as old:
        question = new_request(RequestCode.GET_BROKER_CLUSTER_INFO)
        assert (await old.invoke(address, question, 10)).code == ResponseCode.SUCCESS
        connection = old.connection(address)
        new_certificate, new_key = other.issue("moved")
        shutil.copyfile(new_certificate, values["tls.server.certPath"])
        shutil.copyfile(new_key, values["tls.server.keyPath"])
        with trio.fail_after(30):
            while not await responds(address, client(other)):
                pass
        assert not await responds(address, client(authority))
        assert (await old.invoke(address, question, 10)).code == ResponseCode.SUCCESS
        assert old.connection(address) is connection


async def test_the_product_environment_is_asked_over_tls(tmp_path: Path, authority: Authority) -> None:
    trust = {"tls.client.authServer": "true", "tls.client.trustCertPath": str(authority.certificate)}
    product = server(tmp_path, authority)
    async with running(product) as there:
        asks = {"tls.test.mode.enable": "false", "tls.enable": "true", **trust}
        async with (
            running(asks, cluster_test=True, namesrv_addr=there) as here,
            open_client() as plain,
            open_client(tls_context=client(authority)) as secure,
        ):
            topic = registration("There").encode()
            fields = {**broker_fields(), "haServerAddr": "10.0.0.1:10912"}
            registered = new_request(RequestCode.REGISTER_BROKER, body=topic, ext_fields=fields)
            assert (await secure.invoke(there, registered, 10)).code == ResponseCode.SUCCESS
            question = new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "There"})
            assert b"10.0.0.1:10911" in (await plain.invoke(here, question, 10)).body
    missing = {**asks, "tls.client.trustCertPath": str(tmp_path / "missing.pem")}
    with pytest.raises(ExceptionGroup) as caught:
        async with running(missing, cluster_test=True, namesrv_addr=there):
            pass
    assert caught.group_contains(StartError, match=r"missing\.pem")
