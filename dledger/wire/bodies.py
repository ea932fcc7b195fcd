"""Bodies of DLedger's requests and responses as typed records (io.openmessaging.storage.dledger.protocol).

A body is a JSON object as fastjson writes it: members in alphabetical order, null members omitted, bytes as base64.
Unknown members are ignored when one is read; missing ones have the default of the Java class. Every body names the
receiver (`remote_id`) and the sender (`local_id`); responses of handlers leave most of that out, refusals before a
handler are copies of the request's common members.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import json

from triomq.dledger.wire import codes
from triomq.protocol.bodies.base import Body, replace

ENTRY_HEADER_BYTES: Final = 48
ENTRY_MAGIC: Final = 1

PUSH_APPEND: Final = "APPEND"
PUSH_COMMIT: Final = "COMMIT"
PUSH_COMPARE: Final = "COMPARE"
PUSH_TRUNCATE: Final = "TRUNCATE"
_NO_ENTRIES: Final = b'"batchEntry":[]'


class Entry(Body, frozen=True, kw_only=True):
    """One entry of a ledger. `size` counts its header of 48 bytes; `pos` is its position in the data files. No peer
    computes the two checksums."""

    body: bytes = b""
    body_crc: int = 0
    chain_crc: int = 0
    channel: int = 0
    index: int = 0
    magic: int = ENTRY_MAGIC
    pos: int = 0
    size: int = 0
    term: int = 0

    def is_same(self, other: Entry) -> bool:
        """Return whether both are equal in everything but checksums: index and term alone do not name an entry."""
        return (
            self.index == other.index
            and self.term == other.term
            and self.pos == other.pos
            and self.size == other.size
            and self.magic == other.magic
            and self.channel == other.channel
            and self.body == other.body
        )


class RequestOrResponse(Body, frozen=True, kw_only=True):
    """The common members of all bodies."""

    code: int = codes.SUCCESS
    group: str | None = None
    leader_id: str | None = None
    local_id: str | None = None
    remote_id: str | None = None
    term: int = -1


class VoteRequest(RequestOrResponse, frozen=True, kw_only=True):
    """VOTE: `leader_id` asks to become leader of `term`."""

    ledger_end_index: int = -1
    ledger_end_term: int = -1


class VoteResponse(RequestOrResponse, frozen=True, kw_only=True):
    """The answer to VOTE. Candidates read `term` only from those results that say it is larger than theirs."""

    vote_result: str = codes.VOTE_UNKNOWN


class HeartBeatRequest(RequestOrResponse, frozen=True, kw_only=True):
    """HEART_BEAT of a leader."""


class HeartBeatResponse(RequestOrResponse, frozen=True, kw_only=True):
    """The answer to HEART_BEAT; only with EXPIRED_TERM it has a term. Refusals before the handler name the group."""


class PushRequest(RequestOrResponse, frozen=True, kw_only=True):
    """PUSH: one entry, several, or none (COMMIT). Make it with `push_request`: several members follow from others."""

    batch: bool = False
    batch_entry: list[Entry] = []
    commit_index: int = -1
    count: int = 0
    entry: Entry | None = None
    first_entry_index: int = -1
    last_entry_index: int = -1
    total_size: int = 0
    type: str = PUSH_APPEND

    def encode(self) -> bytes:
        """See Body. The entries, which are almost all of a push, are encoded by msgspec: they have no member that
        fastjson writes in another way."""
        if not self.batch_entry:
            return super().encode()
        head, _, tail = replace(self, batch_entry=[]).encode().partition(_NO_ENTRIES)
        return b"".join([head, b'"batchEntry":', json.encode(self.batch_entry), tail])

    @property
    def entries(self) -> list[Entry]:
        """The entries of a single push, a batch or a COMMIT alike."""
        if self.batch_entry:
            return self.batch_entry
        return [self.entry] if self.entry is not None else []


class PushResponse(RequestOrResponse, frozen=True, kw_only=True):
    """The answer to PUSH. `begin_index` and `end_index` are the follower's after it."""

    begin_index: int = 0
    count: int = 0
    end_index: int = 0
    index: int | None = None


class AppendRequest(RequestOrResponse, frozen=True, kw_only=True):
    """APPEND of a client of the ledger. Brokers append in process and never send it."""

    body: bytes | None = None


class AppendResponse(RequestOrResponse, frozen=True, kw_only=True):
    """The answer to APPEND, given when the entry is committed."""

    index: int = -1
    pos: int = -1


class GetRequest(RequestOrResponse, frozen=True, kw_only=True):
    """GET: the entry at `begin_index`."""

    begin_index: int = -1
    max_size: int = -1


class GetResponse(RequestOrResponse, frozen=True, kw_only=True):
    """The answer to GET: one entry, or none and a code."""

    entries: list[Entry] = []


class MetadataRequest(RequestOrResponse, frozen=True, kw_only=True):
    """METADATA: who leads, and where the members are."""


class MetadataResponse(RequestOrResponse, frozen=True, kw_only=True):
    """The answer to METADATA. `leader_id` is absent if the member knows none. `heart_beat_ms` is ours: the milliseconds
    between heartbeats of a member that has others than RocketMQ's 2,000. `refuses` is ours, and all of
    ours say it: whether the disk of its broker has no room for messages."""

    heart_beat_ms: int | None = None
    peers: dict[str, str] | None = None
    refuses: bool | None = None


class TransferRequest(RequestOrResponse, frozen=True, kw_only=True):
    """LEADERSHIP_TRANSFER, first to the leader `transfer_id`, then from it to the member that takes over."""

    take_leadership_ledger_index: int = 0
    transfer_id: str | None = None
    transferee_id: str | None = None


class TransferResponse(RequestOrResponse, frozen=True, kw_only=True):
    """The answer to LEADERSHIP_TRANSFER."""


Request: TypeAlias = (
    VoteRequest | HeartBeatRequest | PushRequest | AppendRequest | GetRequest | MetadataRequest | TransferRequest
)
Response: TypeAlias = (
    VoteResponse | HeartBeatResponse | PushResponse | AppendResponse | GetResponse | MetadataResponse | TransferResponse
)

REQUESTS: Final[dict[int, type[Request]]] = {
    codes.METADATA: MetadataRequest,
    codes.APPEND: AppendRequest,
    codes.GET: GetRequest,
    codes.VOTE: VoteRequest,
    codes.HEART_BEAT: HeartBeatRequest,
    codes.PUSH: PushRequest,
    codes.LEADERSHIP_TRANSFER: TransferRequest,
}
"""Request code -> body."""
REQUEST_CODES: Final = {body: code for code, body in REQUESTS.items()}

RESPONSES: Final[dict[type[Request], type[Response]]] = {
    MetadataRequest: MetadataResponse,
    AppendRequest: AppendResponse,
    GetRequest: GetResponse,
    VoteRequest: VoteResponse,
    HeartBeatRequest: HeartBeatResponse,
    PushRequest: PushResponse,
    TransferRequest: TransferResponse,
}
"""Body of a request -> body of its response."""


def push_request(
    kind: str, *, group: str, leader: str, follower: str, term: int, committed: int, entries: list[Entry]
) -> PushRequest:
    """Return a push. Several entries make a batch; a batch of one is sent as a single entry."""
    first = PushRequest(
        commit_index=committed,
        group=group,
        leader_id=leader,
        local_id=leader,
        remote_id=follower,
        term=term,
        type=kind,
    )
    if not entries:
        return first
    if len(entries) == 1:
        return replace(
            first, entry=entries[0], count=1, first_entry_index=entries[0].index, last_entry_index=entries[0].index
        )
    return replace(
        first,
        batch=True,
        batch_entry=entries,
        count=len(entries),
        first_entry_index=entries[0].index,
        last_entry_index=entries[-1].index,
        total_size=sum(entry.size for entry in entries),
    )


def vote_response(request: VoteRequest, result: str, term: int) -> VoteResponse:
    return VoteResponse(
        group=request.group,
        leader_id=request.leader_id,
        local_id=request.local_id,
        remote_id=request.remote_id,
        term=term,
        vote_result=result,
    )


def refusal(request: Request, code: int, leader: str | None) -> Response:
    """Return the answer to a request that does not reach its handler: a copy of its common members with this code.
    `leader` is the leader that the receiver knows."""
    return RESPONSES[type(request)](
        code=code,
        group=request.group,
        leader_id=leader,
        local_id=request.local_id,
        remote_id=request.remote_id,
        term=request.term,
    )
