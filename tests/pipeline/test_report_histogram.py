"""Histograms: their buckets, and how far a quantile may be off."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pipeline.reports.histogram import bucket, quantile, upper_edge
from pipeline.reports.tables import QUANTILES

times = st.one_of(st.integers(0, 20), st.integers(0, 10**6), st.integers(0, 2**63 - 1))


def test_buckets_follow_each_other_without_a_gap_up_to_the_longest_time() -> None:
    edge = -1
    for number in range(488):
        assert bucket(edge + 1) == number
        edge = upper_edge(number)
        assert bucket(edge) == number
    assert edge == 2**63 - 1


@given(times)
def test_a_bucket_is_an_eighth_of_its_times_at_most(ms: int) -> None:
    assert ms <= upper_edge(bucket(ms)) <= ms + ms // 8


@given(st.lists(times, min_size=1, max_size=50), st.sampled_from(QUANTILES))
def test_the_exact_quantile_is_in_the_bucket_that_is_told(values: list[int], percent: int) -> None:
    exact = sorted(values)[-(-percent * len(values) // 100) - 1]
    assert quantile(Counter(map(bucket, values)), percent) == upper_edge(bucket(exact))


@given(st.lists(times, max_size=30), st.lists(times, max_size=30))
def test_sums_of_histograms_are_histograms_of_all(some: list[int], others: list[int]) -> None:
    added = Counter(map(bucket, some)) + Counter(map(bucket, others))
    together = Counter(map(bucket, some + others))
    assert [quantile(added, percent) for percent in QUANTILES] == [quantile(together, percent) for percent in QUANTILES]


def test_of_no_times_there_is_no_quantile() -> None:
    assert quantile({}, 50) is None
    assert quantile({3: 0}, 50) is None
