"""An access validator: in addition to the ACL file, only addresses of this machine may use the topics of one team.

python examples/extending/access_validator.py
"""

import tempfile
from pathlib import Path

import trio

from triomq import Credentials, Message, Producer, SendFailed
from triomq.broker.configuration import Configuration
from triomq.broker.embedded import LocalCluster
from triomq.broker.errors import AccessDenied
from triomq.broker.extensions import Extensions
from triomq.protocol.address import HostPort
from triomq.protocol.command import RemotingCommand

ACCOUNTS = """
accounts:
- accessKey: shopService
  secretKey: aLongSecretOfTheShop
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""


class TeamTopics:
    """Entry point: [project.entry-points."triomq.access_validators"] team-topics = "my_package:TeamTopics" """

    def __init__(self, configuration: Configuration | None = None, allowed: str = "10.0.0.1") -> None:
        self.allowed = allowed

    def validate(self, remote: HostPort, request: RemotingCommand) -> None:
        fields = request.ext_fields or {}
        topic = fields.get("topic") or fields.get("b") or ""
        if topic.startswith("Team_") and remote.ip != self.allowed:
            raise AccessDenied(f"{topic} is not for {remote.ip}")


async def main() -> None:
    home = await trio.to_thread.run_sync(tempfile.mkdtemp)
    (Path(home) / "conf").mkdir()
    (Path(home) / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    settings = {"aclEnable": "true", "rocketmqHome": home}
    extensions = Extensions(access_validators=[TeamTopics()])
    account = Credentials("shopService", "aLongSecretOfTheShop")
    async with (
        LocalCluster(extensions=extensions, settings=settings) as cluster,
        Producer("p", name_server=cluster.name_server, credentials=account) as producer,
    ):
        result = await producer.send(Message("Public", b"..."))
        print(f"Public: {result.status.name}")
        try:
            await producer.send(Message("Team_Plans", b"..."))
        except SendFailed as error:
            print(f"Team_Plans: {error}")


if __name__ == "__main__":
    trio.run(main)
