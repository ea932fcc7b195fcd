"""What keeps failing is logged when it begins, once a minute, and when it ended."""

from triomq.protocol.outage import CALM_SECONDS, MAX_KEYS, REMIND_SECONDS, Outage, Outages


def test_of_failures_each_second_the_first_and_one_a_minute_are_logged() -> None:
    outage = Outage()
    logged = [now for now in range(200) if outage.failed(float(now))]
    assert logged == [0, REMIND_SECONDS, 2 * REMIND_SECONDS, 3 * REMIND_SECONDS]


def test_successes_between_failures_end_no_outage() -> None:
    outage = Outage()
    for now in range(50):
        assert outage.failed(float(now)) is (now == 0)
        assert not outage.worked(now + 0.5)


def test_the_end_is_logged_once_and_the_next_failure_at_once() -> None:
    outage = Outage()
    assert not outage.worked(0.0), "nothing had failed"
    assert outage.failed(1.0)
    assert [outage.worked(1.0 + CALM_SECONDS), outage.worked(2.0 + CALM_SECONDS)] == [True, False]
    assert outage.failed(3.0 + CALM_SECONDS)


def test_of_more_keys_than_the_bound_the_oldest_is_forgotten() -> None:
    outages = Outages()
    assert all(outages.failed(str(number), 0.0) for number in range(MAX_KEYS + 1))
    assert len(outages) == MAX_KEYS
    assert [outages.worked("0"), outages.worked("1")] == [False, True]
