"""Times and limits of the rules. The defaults are DLedger 0.3.1.2's, where mixed groups depend on them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds on a member's own monotonic clock, and limits."""

    heartbeat_ms: int = 2000
    lost_after_ms: int = 6000
    """A leader without a quorum of heartbeat answers, and a follower without heartbeats, give up after that long."""
    vote_wait_low_ms: int = 300
    vote_wait_high_ms: int = 999
    """A candidate waits for a random time between both, so that two rarely ask for votes at the same moment."""
    first_wait_ms: int = 150
    """The random wait of a member that has just started, or that knows that its leader's process is gone."""
    look_ms: int = 500
    """The time for members to say whom they follow before a candidate raises its term."""
    vote_round_ms: int = 2000
    longer_log_wait_ms: int = 1000
    """An additional wait of a candidate whose log is shorter than that of others, which should go first."""
    append_wait_ms: int = 2500
    push_pause_ms: int = 500
    """After a COMPARE or TRUNCATE without a usable answer."""
    commit_push_ms: int = 100
    """Followers receive a new committed index at the latest after that long; RocketMQ waits for a second."""
    idle_push_ms: int = 1000
    """A follower that gets nothing else receives the committed index again after that long: the last push may be lost,
    and one that has restarted knows less."""
    hole_ms: int = 1000
    """A push that waits for a missing one before it makes the leader compare."""
    transfer_wait_ms: int = 1000
    transfer_ms: int = 2500
    max_behind: int = 1000
    """A member that is further behind cannot take over the leadership."""
    max_pending: int = 10_000
    """Appends that wait for their quorum at the leader."""
    max_outstanding: int = 256
    """Unanswered pushes to one follower; RocketMQ's followers accept 1,000."""
    max_waiting: int = 2048
    """Pushes out of order that wait at a follower; twice what a leader of RocketMQ sends unanswered."""
    max_batch_bytes: int = 131_072
    busy_ms: int = 20
    """The leader is busy for so long after it has taken an append."""
    busy_piece_bytes: int = 32_768
    busy_pause_ms: int = 3
    idle_piece_bytes: int = 1_048_576
    """What a follower that catches up gets at a time: a piece in each pause of a busy leader, and one in each
    millisecond of an idle one."""
    catch_up_outstanding: int = 16
    """Unanswered pushes to a follower that catches up: enough for a network, and clients that begin to append do not
    have to wait for more."""
    max_batch_entries: int = 1024
    max_immediate_rounds: int = 20
    """Vote rounds in a row without a wait, for peers that are about to raise their term."""
    vote_repeat_ms: int = 50
    """The wait before each further round."""


DEFAULT = Timing()
FAST = Timing(
    heartbeat_ms=200,
    lost_after_ms=800,
    vote_wait_low_ms=50,
    vote_wait_high_ms=200,
    first_wait_ms=50,
    look_ms=200,
    vote_round_ms=600,
    longer_log_wait_ms=150,
)
"""dLegerFastElection: a leader that is cut off or stands still is replaced within a second or two. All members must use
it. RocketMQ's leader, with its two seconds between heartbeats, would be replaced all the time."""
