"""A hook that counts requests by their code and refuses those from one address.

python examples/extending/request_hook.py
"""

from collections import Counter

import trio

from triomq import Message, Producer
from triomq.broker.configuration import Configuration
from triomq.broker.embedded import LocalCluster
from triomq.broker.extensions import Extensions
from triomq.protocol.address import HostPort
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.errors import RequestRefused


class Counting:
    """Entry point: [project.entry-points."triomq.request_hooks"] counting = "my_package:Counting" """

    blocked = "10.9.8.7"

    def __init__(self, configuration: Configuration | None = None) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()

    def before_request(self, remote: HostPort, request: RemotingCommand) -> None:
        if remote.ip == self.blocked:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"{remote.ip} may not come in")

    def after_response(self, remote: HostPort, request: RemotingCommand, response: RemotingCommand) -> None:
        self.answers[RequestCode(request.code).name, response.code] += 1


async def main() -> None:
    counting = Counting()
    async with (
        LocalCluster(extensions=Extensions(request_hooks=[counting])) as cluster,
        Producer("p", name_server=cluster.name_server) as producer,
    ):
        for _ in range(3):
            await producer.send(Message("Hello", b"world"))
    sends = sum(count for (name, code), count in counting.answers.items() if name.startswith("SEND_") and code == 0)
    print(f"{sends} sends were answered with SUCCESS")


if __name__ == "__main__":
    trio.run(main)
