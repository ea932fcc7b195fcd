"""Disk usage counts the space that this process may use."""

import shutil
from collections import namedtuple

import pytest

from triomq.store.disk.files import Files

Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(
    ("usage", "ratio"),
    [
        (Usage(1000, 250, 750), 0.25),
        (Usage(1000, 100, 0), 1.0),  # the rest is reserved: the process can write no more
        (Usage(1000, 100, 300), 0.25),  # a quota
        (Usage(0, 0, 0), -1.0),
    ],
)
def test_the_used_part_is_of_what_may_be_used(monkeypatch: pytest.MonkeyPatch, usage: Usage, ratio: float) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert Files().disk_usage_ratio("/") == ratio


def test_a_path_that_is_not_there() -> None:
    assert Files().disk_usage_ratio("/no/such/path") == -1.0
