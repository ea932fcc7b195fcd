"""A broker that refuses a question is in the output without its figures, and the exit code says so."""

from __future__ import annotations

import pytest
from fake_cluster import fake_cluster

from triomq.admin.__main__ import main


@pytest.mark.parametrize("more", [[], ["-m"]])
def test_a_list_of_a_cluster_with_a_broker_that_refuses_is_whole_and_fails(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_cluster() as cluster:
        words = ["clusterList", "-n", cluster.address, *more]
        assert main(words) == 0
        whole = capsys.readouterr()
        cluster.refusals[28] = (1, "the broker is ill")
        assert main(words) == 6
        partial = capsys.readouterr()
    assert (whole.err, "the broker is ill" in partial.err) == ("", True)
    assert len(partial.out.splitlines()) == len(whole.out.splitlines())
