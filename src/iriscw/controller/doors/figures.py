"""Families of metrics from plain figures."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

Family: TypeAlias = Metric
"""What is shown under one name: a gauge, a counter or a histogram, with labels or without."""

Labels: TypeAlias = tuple[str, ...]

GAUGE, COUNTER = GaugeMetricFamily, CounterMetricFamily
"""For :func:`labelled`."""


def gauge(name: str, text: str, value: float) -> Metric:
    """Return a gauge without labels."""
    return GaugeMetricFamily(name, text, value)


def gauges(prefix: str, statistics: Any) -> Iterator[Metric]:
    """Yield a gauge for each number of an attrs value."""
    for field in attrs.fields(type(statistics)):
        value = getattr(statistics, field.name)
        if isinstance(value, int | float):
            yield GaugeMetricFamily(f"{prefix}_{field.name}", f"{prefix} {field.name}".replace("_", " "), float(value))


def counter(name: str, text: str, value: float) -> Metric:
    """Return a counter without labels; ``_total`` is added to its name."""
    return CounterMetricFamily(name, text, value)


def labelled(
    make: Callable[..., Metric], name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Labels, float]]
) -> Metric:
    """Return a family with labels: ``make`` is ``GAUGE`` or ``COUNTER``, and values come by those of the labels."""
    family: Any = make(name, text, labels=labels)
    for key, value in values:
        family.add_metric([*key], value)
    found: Metric = family
    return found


def histogram(
    name: str, text: str, labels: Sequence[str], bounds: Sequence[float], values: Mapping[Any, Any]
) -> Metric:
    """Return a histogram. Each value has ``counts``, the last for what exceeds all bounds, and ``sum_s``."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for key, lasted in sorted(values.items()):
        counts = itertools.accumulate(lasted.counts)
        family.add_metric([*key], list(zip((*map(str, bounds), "+Inf"), counts, strict=True)), lasted.sum_s)
    return family
