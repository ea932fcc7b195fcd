"""Statuses and results: their numbers, and which byte is the last."""

from __future__ import annotations

from triomq.store.results import GetStatus, PutResult, PutStatus


def test_statuses_are_those_of_rocketmq_in_its_order() -> None:
    assert {status.name: status.value for status in PutStatus} == {
        "PUT_OK": 0,
        "FLUSH_DISK_TIMEOUT": 1,
        "FLUSH_SLAVE_TIMEOUT": 2,
        "SLAVE_NOT_AVAILABLE": 3,
        "SERVICE_NOT_AVAILABLE": 4,
        "CREATE_MAPEDFILE_FAILED": 5,
        "MESSAGE_ILLEGAL": 6,
        "PROPERTIES_SIZE_EXCEEDED": 7,
        "OS_PAGECACHE_BUSY": 8,
        "UNKNOWN_ERROR": 9,
        "LMQ_CONSUME_QUEUE_NUM_EXCEEDED": 10,
    }
    assert {status.name: status.value for status in GetStatus} == {
        "FOUND": 0,
        "NO_MATCHED_MESSAGE": 1,
        "MESSAGE_WAS_REMOVING": 2,
        "OFFSET_FOUND_NULL": 3,
        "OFFSET_OVERFLOW_BADLY": 4,
        "OFFSET_OVERFLOW_ONE": 5,
        "OFFSET_TOO_SMALL": 6,
        "NO_MATCHED_LOGIC_QUEUE": 7,
        "NO_MESSAGE_IN_QUEUE": 8,
        "OFFSET_RESET": 9,
    }


def test_the_last_byte_of_a_put_is_the_one_before_its_end() -> None:
    """A slave that has all but this byte does not have the message."""
    put = PutResult(PutStatus.PUT_OK, physical_offset=100, size_bytes=50)
    assert (put.last_offset, put.end_offset) == (149, 150)
