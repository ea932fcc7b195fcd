"""Settings of an embedded cluster are checked where they are written."""

from __future__ import annotations

from typing import Any

import pytest

from triomq.broker.embedded import LocalCluster, ProcessCluster
from triomq.protocol.settings import SettingError


@pytest.mark.parametrize("cluster", [LocalCluster, ProcessCluster])
@pytest.mark.parametrize(
    ("key", "text", "says"),
    [
        ("mapedFileSizeCommitLog", "4096", "is not a key of the broker; did you mean mappedFileSizeCommitLog?"),
        ("zzz", "1", "is not a key of the broker"),
        ("autoCreateTopicEnable", "maybe", "'maybe' is neither true nor false"),
    ],
)
def test_a_wrong_setting_is_refused_by_the_constructor(cluster: Any, key: str, text: str, says: str) -> None:
    with pytest.raises(SettingError) as refused:
        cluster(settings={key: text})
    assert str(refused.value) == f"settings of the cluster: {key}: {says}"
