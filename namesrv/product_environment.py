"""clusterTest: fetches routes of unknown topics from the NameServers of the product environment (RocketMQ:
ClusterTestRequestProcessor).

Their addresses come from namesrvAddr, or else from the address server at
http://<domain>:8080/rocketmq/<subgroup>-<productEnvName>?nofix=1, queried at most every two minutes.
"""

from __future__ import annotations

import structlog
import trio
from msgspec import Struct

from triomq.protocol.command import RemotingCommand, new_request
from triomq.remoting.client import RemotingClient
from triomq.remoting.errors import RemotingError
from triomq.remoting.http_get import HttpFailed, get_text

log = structlog.get_logger("triomq.namesrv.product_environment")

DEFAULT_DOMAIN = "jmenv.tbsite.net"
DEFAULT_SUBGROUP = "nsaddr"

REFRESH_SECONDS = 120.0
INVOKE_SECONDS = 3.0
FETCH_SECONDS = 3.0


class AddressServer(Struct, frozen=True):
    """Where the list of NameServers is published (properties rocketmq.namesrv.domain and ...domain.subgroup)."""

    domain: str = DEFAULT_DOMAIN
    subgroup: str = DEFAULT_SUBGROUP

    def url(self, environment: str) -> str:
        port = "" if ":" in self.domain else ":8080"
        return f"http://{self.domain}{port}/rocketmq/{self.subgroup}-{environment}?nofix=1"


class ProductEnvironment:
    """Asks the NameServers of another environment. Owned by the controller, used by the processor."""

    def __init__(self, client: RemotingClient, addresses: str | None, url: str) -> None:
        self._client = client
        self._fixed = _split(addresses or "")
        self._url = url
        self._fetched: list[str] = []
        self._fetched_at = -REFRESH_SECONDS
        self._fetching = trio.Lock()

    async def ask(self, request: RemotingCommand) -> bytes | None:
        """Return the body of the response to the same request there; None if there is none."""
        question = new_request(request.code, ext_fields=request.ext_fields)
        question.version = request.version
        for address in self._fixed or await self._fetch():
            try:
                answer = await self._client.invoke(address, question, INVOKE_SECONDS)
            except RemotingError as error:
                log.info("product environment not reached", address=address, error=str(error))
                continue
            return answer.body if answer.code == 0 and answer.body else None
        return None

    async def _fetch(self) -> list[str]:
        async with self._fetching:
            now = trio.current_time()
            if now - self._fetched_at >= REFRESH_SECONDS:
                self._fetched_at = now
                try:
                    self._fetched = _split(await get_text(self._url, FETCH_SECONDS))
                except HttpFailed as error:
                    log.warning("address server not reached", url=self._url, error=str(error))
        return self._fetched


def _split(addresses: str) -> list[str]:
    return [address.strip() for address in addresses.split(";") if address.strip()]
