"""Days of time zones, also those with 23 and 25 hours, with none, and with a clock change at midnight."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.reports.days import DAY_MS, Days
from pipeline.reports.report import Period

ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "Pacific/Kiritimati", "Pacific/Apia"),
    *("Asia/Kathmandu", "Asia/Beirut", "Africa/Cairo", "Australia/Lord_Howe", "Etc/GMT+12"),
)


@pytest.mark.parametrize(
    ("day", "zone", "hours"),
    [
        (date(2026, 3, 29), "Europe/Berlin", 23.0),
        (date(2026, 10, 25), "Europe/Berlin", 25.0),
        (date(2026, 10, 25), "UTC", 24.0),
        (date(2026, 11, 1), "America/New_York", 25.0),
        (date(2026, 4, 5), "Australia/Lord_Howe", 24.5),
        (date(2026, 3, 29), "Asia/Beirut", 23.0),
    ],
)
def test_a_day_is_as_long_as_its_clocks_say(day: date, zone: str, hours: float) -> None:
    assert Days.of(Period(day, day, zone)).hours() == {day: hours}
    around = Days.of(Period(day - timedelta(1), day + timedelta(1), zone)).hours()
    assert around == {day - timedelta(1): 24.0, day: hours, day + timedelta(1): 24.0}


def test_a_day_that_never_was_is_missing() -> None:
    assert list(Days.of(Period(date(2011, 12, 29), date(2011, 12, 31), "Pacific/Apia")).hours()) == [
        date(2011, 12, 29),
        date(2011, 12, 31),
    ]
    never = Days.of(Period(date(2011, 12, 30), date(2011, 12, 30), "Pacific/Apia"))
    assert never.spans == ()
    assert never.begin_ms == never.end_ms


@given(st.dates(date(1990, 1, 1), date(2037, 1, 1)), st.integers(0, 40), st.sampled_from(ZONES), st.data())
def test_every_time_is_in_the_span_of_its_day_and_in_no_other(
    first: date, more: int, zone: str, data: st.DataObject
) -> None:
    days = Days.of(Period(first, first + timedelta(more), zone))
    times = st.integers(days.begin_ms - DAY_MS, days.end_ms + DAY_MS)
    edges = [span.begin_ms for span in days.spans]
    if edges:
        times |= st.builds(int.__add__, st.sampled_from(edges), st.integers(-1, 1))
    for ms in data.draw(st.lists(times, min_size=1, max_size=20)):
        # zoneinfo's clock of the whole second: what is behind it changes no date.
        day = datetime.fromtimestamp(ms // 1000, UTC).astimezone(ZoneInfo(zone)).date()
        found = [span.day for span in days.spans if span.begin_ms <= ms < span.end_ms]
        assert found == ([day] if first <= day <= first + timedelta(more) else [])


@given(st.dates(date(1990, 1, 1), date(2037, 1, 1)), st.integers(0, 400), st.sampled_from(ZONES))
def test_the_days_of_a_period_are_all_of_it(first: date, more: int, zone: str) -> None:
    days = Days.of(Period(first, first + timedelta(more), zone))
    assert sum(days.hours().values()) * 3_600_000 == days.end_ms - days.begin_ms
    for one, following in zip(days.spans, days.spans[1:], strict=False):
        assert one.end_ms == following.begin_ms


def test_a_period_that_is_not_over_ends_now() -> None:
    period = Period(date(2026, 11, 27), date(2026, 11, 28))
    over = Days.of(period)
    assert Days.of(period, over.end_ms - 1).end_ms == over.end_ms - 1
    assert Days.of(period, over.end_ms + 1).end_ms == over.end_ms
    assert Days.of(period, over.begin_ms).hours() == over.hours()


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(ZoneInfoNotFoundError):
        Days.of(Period(date(2026, 1, 1), date(2026, 1, 1), "Mars/Olympus"))
