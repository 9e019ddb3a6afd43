"""The saved figures of invocations (bench/scale/invocations.py) as numbers by nodes: time, requests, bytes, dollars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.scale import cost
from bench.scale.invocations import FUNCTIONS, INVOCATIONS_AN_HOUR

if TYPE_CHECKING:
    from collections.abc import Mapping

MB = 1e6


def requests(figures: Mapping[str, Any]) -> float:
    """Requests of an invocation to the API server."""
    return float(sum(counts["requests"] for counts in figures["requests"].values()))


def received(figures: Mapping[str, Any]) -> float:
    """Bytes that an invocation receives from it."""
    return float(sum(counts["bytes"] for counts in figures["requests"].values()))


def an_hour(by_function: Mapping[str, Mapping[str, Any]], kind: str) -> tuple[float, float]:
    """Requests and bytes of all functions in an hour."""
    all_figures = [by_function[function][kind] for function in FUNCTIONS]
    return (
        INVOCATIONS_AN_HOUR * sum(map(requests, all_figures)),
        INVOCATIONS_AN_HOUR * sum(map(received, all_figures)),
    )


def largest(figures: Mapping[str, Any], most: int = 3) -> str:
    """The requests with the most bytes, by verb and kind."""
    by_bytes = sorted(figures["requests"].items(), key=lambda item: -item[1]["bytes"])[:most]
    return ", ".join(f"{name} {counts['bytes'] / MB:.3g} MB" for name, counts in by_bytes)


def seconds(function: str, by_function: Mapping[str, Mapping[str, Any]], kind: str, nodes: int) -> float:
    """What Lambda charges an invocation for."""
    return cost.billed_seconds(function, by_function[function][kind], nodes)
