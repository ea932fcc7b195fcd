"""A member of a group comes back empty when the messages of some queues have expired, and leads."""

from __future__ import annotations

import shutil
from pathlib import Path

import trio
from interop_group import Group, Observer

from triomq import Message, Producer
from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.headers.offset import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader
from triomq.remoting.client import RemotingClient, open_client

EARLY = "EarlyTopic"
FILE_BYTES = 1 << 16
EXPIRY = {"mappedFileSizeCommitLog": str(FILE_BYTES), "fileReservedTime": "0", "cleanResourceInterval": "1000"}
"""Settings with which all files but the last expire as soon as a member is asked to clean."""
SECONDS = 60

Ends = dict[int, int]
"""Queue id -> the queue offset of its next message."""


class Expiry:
    """What happens to the messages of `EARLY`."""

    def __init__(self, group: Group, client: RemotingClient) -> None:
        self._group = group
        self._client = client
        self.ends: Ends = {}
        self._last_at = 0

    async def send(self, count: int) -> None:
        """Send messages. Each gets the next queue offset of its queue."""
        async with Producer("group-early", name_server=self._group.name_server) as producer:
            with trio.fail_after(SECONDS):
                for _ in range(count):
                    result = None
                    while result is None:
                        try:
                            result = await producer.send(Message(EARLY, b"early"), timeout_seconds=5)
                        except Exception:
                            await trio.sleep(0.1)
                    queue_id, begin = result.queue.queue_id, self.ends.get(result.queue.queue_id)
                    assert begin is None or result.queue_offset == begin, (
                        f"queue {queue_id} went on with {result.queue_offset} behind {begin}"
                    )
                    self.ends[queue_id] = result.queue_offset + 1
                    self._last_at = int(result.offset_message_id[-16:], 16)

    async def expire(self) -> None:
        """Fill some files, and let all members clean theirs until they have none of the messages."""
        async with Producer("group-late", name_server=self._group.name_server) as producer:
            for _ in range(300):
                await producer.send(Message("LateTopic", b"." * 1000), timeout_seconds=10)
        with trio.fail_after(SECONDS):
            for member in self._group.running:
                if self._group.kinds[member] == "apache":
                    await trio.to_thread.run_sync(self._remove_files, member)
                    await self._group.start_soon(member)
                    continue
                await self._ask(member, new_request(RequestCode.DELETE_EXPIRED_COMMITLOG))
                while await self._log_begin(member) <= self._last_at:  # noqa: ASYNC110, over TCP
                    await trio.sleep(0.1)

    def _remove_files(self, member: str) -> None:
        """Stop a member, and remove what the retention of one of Apache's would, which waits for a minute."""
        self._group.stop(member)
        *expired, _ = sorted(Path(self._group.ledger_directory(member), "data").iterdir())
        for path in expired:
            if int(path.name) <= self._last_at:
                path.unlink()

    async def come_back_empty(self, member: str) -> None:
        """Let a member lose its store, and wait until it knows the ends of the queues again."""
        self._group.kill(member)
        shutil.rmtree(self._group.directory / member / "store")
        await self._group.start_soon(member)
        # A leader of Apache's to which the member was equal fills it again only when it has an entry to append: until
        # then it sends the number of the last committed one, and does not look at the answer.
        async with Producer("group-late", name_server=self._group.name_server) as producer:
            await producer.send(Message("LateTopic", b"."), timeout_seconds=10)
        found: Ends = {}
        with trio.move_on_after(SECONDS):  # it looks for its master every 30 s
            while found != self.ends:
                await trio.sleep(0.1)
                found = {queue_id: await self._end(member, queue_id) for queue_id in self.ends}
        assert found == self.ends, f"{member} knows these ends of {self.ends}: {found}"
        assert await self._log_begin(member) > self._last_at, "it has none of the messages"

    async def _log_begin(self, member: str) -> int:
        answer = await self._ask(member, new_request(RequestCode.GET_BROKER_RUNTIME_INFO))
        return int(KVTable.decode(answer.body).table["commitLogMinOffset"])

    async def _end(self, member: str, queue_id: int) -> int:
        header = GetMaxOffsetRequestHeader(topic=EARLY, queue_id=queue_id)
        answer = await self._ask(member, new_request(RequestCode.GET_MAX_OFFSET, header=header))
        return answer.header(GetMaxOffsetResponseHeader).offset

    async def _ask(self, member: str, request: RemotingCommand) -> RemotingCommand:
        answer = await self._client.invoke(self._group.broker_address(member), request, 5)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer


async def check_ends_survive(group: Group, observer: Observer, leader: str, member: str) -> None:
    """No queue offset is given twice when a member leads that was filled behind the messages of a queue."""
    async with open_client() as client:
        expiry = Expiry(group, client)
        await observer.make_lead(leader)
        await expiry.send(12)
        await expiry.expire()
        await observer.make_lead(leader)
        await expiry.come_back_empty(member)
        await observer.make_lead(member)
        await expiry.send(12)
