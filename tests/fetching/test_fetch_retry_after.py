"""`Retry-After`: both forms, read strictly."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker_svc.fetch.retry_after import http_date, retry_after

NOW = datetime(2026, 11, 28, 12, 0, 0, tzinfo=UTC).timestamp()
DATES = st.datetimes(datetime(1970, 1, 2), datetime(2069, 12, 31)).map(lambda d: d.replace(tzinfo=UTC, microsecond=0))


@given(st.integers(1, 10**9))
def test_seconds(seconds: int) -> None:
    assert retry_after(f" {seconds}\t", NOW) == seconds
    assert retry_after(f"000{seconds}", NOW) == seconds


@given(DATES)
def test_dates_in_all_three_forms(date: datetime) -> None:
    forms = ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y")
    for form in forms:
        assert http_date(date.strftime(form)) == date.timestamp()
    asked = retry_after(date.strftime(forms[0]), NOW)
    ahead = date.timestamp() - NOW
    assert asked == (ahead + 1 if ahead > 0 else None)


@given(st.text())
def test_no_text_breaks_it_and_no_answer_is_negative(text: str) -> None:
    for value in (retry_after(text, NOW), retry_after("10", NOW, text), retry_after(text, NOW, text)):
        assert value is None or value > 0


@pytest.mark.parametrize(
    "value",
    [
        "",
        "0",
        "-1",
        "+1",
        "1.5",
        "1e3",
        "soon",
        "10 s",
        "٣",
        "Sat, 28 Nov 2026 11:59:00 GMT",
        "28 Nov 2026 12:01:00 GMT",
    ],
)
def test_what_is_no_wait_is_none(value: str) -> None:
    assert retry_after(value, NOW) is None


def test_eight_digits_are_seconds_and_no_date() -> None:
    assert retry_after("20261128", NOW) == 20261128


def test_a_date_begins_like_a_number_only_for_others() -> None:
    assert retry_after("Sat, 28 Nov 2026 12:00:30 GMT", NOW) == pytest.approx(31)


def test_the_servers_own_clock_decides() -> None:
    date = "Sat, 28 Nov 2026 03:00:30 GMT"
    assert retry_after(date, NOW) is None
    assert retry_after(date, NOW, "Sat, 28 Nov 2026 03:00:00 GMT") == 30
    assert retry_after("7", NOW, "Sat, 28 Nov 2026 03:00:00 GMT") == 7


def test_absurd_numbers_stay_finite() -> None:
    assert retry_after("9" * 400, NOW) == 10.0**12
