"""Runs ``tenon shadow report``: what ran in comparison with what Tenon would have run."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from cli import json_output
from cli.cluster import kubeconfig_context, live_reader
from cli.errors import UsageError
from cli.printable import echo
from cli.shadow import days as shadow_days
from cli.shadow import json_report, output
from cli.terminal import console
from shared.base import runtime

if TYPE_CHECKING:
    from cli.cluster.cluster_reference import ClusterReference
    from cli.shadow.days import ShadowDays


def read(reference: ClusterReference, *, days: int, day: str) -> ShadowDays:
    """The record of the last days, or of one ``day``."""
    if day:
        _check(day)
    reference = kubeconfig_context.resolve_named(reference)
    with live_reader.read_only_aws(reference):
        return shadow_days.read(reference.cluster, now=runtime.now(), days=days, day=day)


def show(read: ShadowDays, *, as_json: bool) -> None:
    """Print the record."""
    if as_json:
        echo(json_output.text("shadow report", json_report.output(read)))
    else:
        output.show(console(), read)


def _check(day: str) -> None:
    try:
        date.fromisoformat(day)
    except ValueError as error:
        raise UsageError(f"--day {day}: must be a day such as 2026-03-31") from error
