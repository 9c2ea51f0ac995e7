"""How a report tells numbers, which marks its axes have, and how it puts days together."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.lake.period import period
from cli.problems import CommandError
from kernel.config.loading import defaults
from pipeline.lake.epochs import Marker
from pipeline.reports.holes import of_period
from pipeline.reports.page import bins, markup, scales, views, words
from pipeline.reports.report import Period
from pipeline.reports.run import ingest_days, kept_from
from pipeline.retention.policy import Policy, over

NOW = datetime(2026, 11, 28, 1, 30, tzinfo=UTC)
_PERIODS = st.builds(
    lambda first, days: Period(first, first + timedelta(days=days - 1)),
    st.dates(date(2000, 1, 1), date(2060, 1, 1)),
    st.integers(1, 3660),
)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (words.count(0), "0"),
        (words.count(1204), "1,204"),
        (words.count(55.97), "56"),
        (words.count(2.26), "2.3"),
        (words.count(None), "\u2013"),
        (words.short(9999), "9,999"),
        (words.short(31_240), "31.2 k"),
        (words.short(4_500_000), "4.5 M"),
        (words.share(1.0), "100 %"),
        (words.share(0.99996), "> 99.9 %"),
        (words.share(0.00001), "< 0.1 %"),
        (words.share(0.9241), "92.4 %"),
        (words.share(0), "0 %"),
        (words.size(1023), "1023 B"),
        (words.size(1536), "1.5 KiB"),
        (words.size(5 << 30), "5 GiB"),
        (words.duration(0), "0 ms"),
        (words.duration(999.6), "1 s"),
        (words.duration(59_400), "59.4 s"),
        (words.duration(200_000), "3 min 20 s"),
        (words.duration(90_000_000), "1 d 1 h"),
        (words.duration(86_400_000 * 1200), "1,200 d"),
    ],
)
def test_numbers_are_told_as_people_read_them(told: str, expected: str) -> None:
    assert told.replace("\u00a0", " ") == expected


@given(st.floats(0, 1e15), st.sampled_from([scales.counts, scales.sizes, scales.durations]))
def test_the_marks_of_an_axis_are_few_begin_at_zero_and_reach_the_highest_value(top: float, ticks: Any) -> None:
    marks = ticks(top)
    assert marks[0] == 0
    assert marks[-1] >= top * (1 - 1e-9)
    assert 2 <= len(marks) <= 7
    assert all(before < mark for before, mark in pairwise(marks))


@given(st.floats(1, 1e13), st.floats(1, 1e13))
def test_the_marks_of_times_lie_around_them(one: float, other: float) -> None:
    low, high = sorted((one, other))
    marks = scales.decades(low, high)
    assert len(marks) >= 2
    assert marks[0] <= low
    assert marks[-1] >= min(high, 3650 * 86_400_000)


@given(st.floats(0, 1))
def test_the_marks_of_shares_end_at_one(low: float) -> None:
    marks = scales.shares(low)
    assert marks[0] <= low
    assert marks[-1] == 1


@given(_PERIODS)
def test_every_day_of_a_period_is_in_one_bin_and_bins_are_not_too_many(given_period: Period) -> None:
    found = bins.bins(given_period)
    assert [one.first + timedelta(days=n) for one in found for n in range(one.days)] == list(given_period)
    assert len(found) <= (bins.MOST if given_period.days <= 428 else 122)
    assert len({one.unit for one in found}) == 1
    assert sum(bins.totals(found, dict.fromkeys(given_period, 1))) == given_period.days


def test_a_day_on_which_clocks_are_changed_has_as_many_hours_as_it_has() -> None:
    def hours(day: date, zone: str) -> float:
        return views.hours(bins.Bin(day, day, "day"), zone)

    assert [hours(date(2026, 3, 29), zone) for zone in ("Europe/Berlin", "UTC")] == [23, 24]
    assert [hours(date(2026, 11, 1), zone) for zone in ("America/New_York", "Pacific/Kiritimati")] == [25, 24]


@given(st.text())
def test_no_name_becomes_markup_and_nothing_in_it_is_unseen(text: str) -> None:
    shown = markup.tag("b", markup.visible(text), title=text)
    assert shown.count("<") == 2
    assert shown.count('"') == 2
    assert markup.visible(text).isprintable()


def test_attributes_of_an_element_are_there_only_where_they_say_something() -> None:
    shown = markup.tag("rect", x=0, y=None, hidden=True, class_="a b", aria_hidden="true", open=False)
    assert shown == '<rect x="0" hidden class="a b" aria-hidden="true"></rect>'
    assert markup.tag("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_without_days_the_last_seven_whole_ones_of_the_time_zone_are_meant() -> None:
    assert period("", "", "UTC", NOW) == Period(date(2026, 11, 21), date(2026, 11, 27))
    west = "America/New_York"
    assert period("", "", west, NOW) == Period(date(2026, 11, 20), date(2026, 11, 26), west)
    assert period("2026-11-01", "", "UTC", NOW).days == 27
    assert period("", "2026-11-10", "UTC", NOW).first == date(2026, 11, 4)
    assert period("2026-11-28", "2026-11-28", "UTC", NOW).days == 1


@pytest.mark.parametrize(
    ("first", "last", "zone", "told"),
    [
        ("2026-11-31", "", "UTC", "--from: '2026-11-31' is no day"),
        ("", "yesterday", "UTC", "--to: 'yesterday' is no day"),
        ("2026-11-10", "2026-11-09", "UTC", "ends before it begins"),
        ("", "2026-11-29", "UTC", "still to come"),
        ("2026-11-27", "2026-11-28", "America/New_York", "still to come"),
        ("0001-01-01", "", "UTC", "days are too many"),
        ("", "", "Mars/Olympus", "no time zone"),
        ("", "", "../../etc/passwd", "no time zone"),
        ("", "", "Europe", "no time zone"),
    ],
)
def test_what_is_no_period_is_wrong_usage(first: str, last: str, zone: str, told: str) -> None:
    with pytest.raises(CommandError) as caught:
        period(first, last, zone, NOW)
    assert told in caught.value.message
    assert caught.value.exit_code == 2


def test_the_holes_of_a_period_are_those_that_may_have_entries_of_it() -> None:
    def marker(after: datetime | None, found: datetime) -> Marker:
        position = f"{int(after.timestamp() * 1000)}-0" if after else "0-0"
        return Marker("hole", "logs", 0, 2, position, position, position, 3, int(found.timestamp() * 1000), "s", None)

    def at(day: int, hour: int = 12) -> datetime:
        return datetime(2026, 11, day, hour, tzinfo=UTC)

    days = Period(
        date(2026, 11, 21), date(2026, 11, 22), "America/New_York"
    )  # from 5:00 of the 21st to 5:00 of the 23rd
    inside = [(at(22), at(22, 13)), (at(23, 4), at(25)), (at(1), at(21, 6)), (None, at(24)), (at(20), at(24))]
    outside = [(at(20), at(21, 4)), (at(23, 6), at(24)), (None, at(20))]
    found = of_period([marker(*times) for times in [*inside, *outside]], days)
    assert {(hole.after, hole.found) for hole in found} == set(inside)
    assert [hole.found for hole in found] == sorted(hole.found for hole in found)


def test_a_report_knows_which_of_its_days_are_over_their_time() -> None:
    config = defaults()
    config.lake.tenants["acme"].status.FromSeconds(60 * 86_400)
    month = Period(date(2026, 11, 1), date(2026, 11, 27))
    assert kept_from(config, month, NOW) == {"status": date(2026, 11, 14)}
    assert kept_from(config, month, NOW, "acme") == {}
    policy = Policy.of(config.lake).tables["status"]
    days = [date(2026, 11, 13), date(2026, 11, 14)]
    assert [over(day, policy.of(""), int(NOW.timestamp() * 1000)) for day in days] == [True, False]
    assert kept_from(config, Period(date(2026, 11, 14), date(2026, 11, 27)), NOW) == {}
    assert ingest_days(month, NOW) == (date(2026, 10, 24), date(2026, 11, 28))


def test_what_was_told_late_is_in_the_report_too() -> None:
    late = datetime(2027, 2, 1, tzinfo=UTC)
    assert ingest_days(Period(date(2026, 11, 1), date(2026, 11, 10)), late) == (date(2026, 10, 24), date(2027, 2, 1))


def test_a_period_that_begins_today_says_which_day_it_lacks() -> None:
    with pytest.raises(CommandError) as refused:
        period("2026-11-28", "", "UTC", datetime(2026, 11, 28, 12, tzinfo=UTC))
    assert "without it, it is yesterday" in refused.value.hint
