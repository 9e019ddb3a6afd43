"""The rows of large clusters in bench/RESULTS.md, and the tables of docs/scale.md, from the saved figures.

``python -m bench.scale.results`` prints the tables and draws the pictures.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from bench.cost_model import FULL_VCPU
from bench.scale import cost, figures, pictures
from bench.scale.figures import MB
from bench.scale.invocations import (
    BUSY,
    CLUSTERS,
    FIRST,
    FUNCTIONS,
    IDLE,
    INVOCATIONS_AN_HOUR,
    WARNINGS,
    replaced_a_minute,
    saved_results,
)
from bench.scale.karpenter_watches import received
from infra import function_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Row = dict[str, str]
_KINDS = (FIRST, IDLE, BUSY)


def run() -> list[Row]:
    """The rows."""
    saved = saved_results()
    rows = [row for nodes, by_function in saved.items() for row in _invocation_rows(nodes, by_function)]
    rows += [row for nodes, by_function in saved.items() for row in _hour_rows(nodes, by_function)]
    rows += [row for nodes, by_function in saved.items() for row in _cost_rows(nodes, by_function)]
    return rows


def requests_table() -> str:
    """Requests and MB an hour by nodes, with what Karpenter's watches receive."""
    lines = [
        "| nodes, pods | idle: requests | MB | busy: requests | MB | Karpenter's watches: MB, idle | busy |",
        "|---|---|---|---|---|---|---|",
    ]
    for nodes, by_function in saved_results().items():
        pods = CLUSTERS[nodes]
        tenon = [figures.an_hour(by_function, kind) for kind in (IDLE, BUSY)]
        own = " | ".join(f"{number:,.0f} | {size / MB:,.0f}" for number, size in tenon)
        theirs = " | ".join(f"{received(nodes, pods, busy=busy).bytes_an_hour / MB:,.0f}" for busy in (False, True))
        lines.append(f"| {nodes:,}, {pods:,} | {own} | {theirs} |")
    return "\n".join(lines)


def invocations_table() -> str:
    """Requests, MB and billed seconds of an invocation, by function and nodes."""
    lines = [
        "| function, nodes | first: requests, MB, seconds | idle | busy |",
        "|---|---|---|---|",
    ]
    for function in FUNCTIONS:
        for nodes, by_function in saved_results().items():
            cells = [
                f"{figures.requests(of):,.0f}, {figures.received(of) / MB:,.1f}, "
                f"{figures.seconds(function, by_function, kind, nodes):.2f}"
                for kind in _KINDS
                for of in [by_function[function][kind]]
            ]
            lines.append(f"| {function}, {nodes:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cost_table() -> str:
    """USD a month by nodes."""
    lines = ["| nodes, pods | idle | office hours | busy around the clock | target |", "|---|---|---|---|---|"]
    for nodes, by_function in saved_results().items():
        usd = cost.totals(by_function, nodes)
        target = f"at most {cost.TARGETS[nodes]}" if nodes in cost.TARGETS else ""
        lines.append(
            f"| {nodes:,}, {CLUSTERS[nodes]:,} | {usd['idle']:.2f} | **{usd['office hours']:.2f}** "
            f"| {usd['busy']:.2f} | {target} |"
        )
    return "\n".join(lines)


def _invocation_rows(nodes: int, by_function: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    for function in FUNCTIONS:
        measured = by_function[function]
        for kind in (*_KINDS, *([WARNINGS] if WARNINGS in measured else [])):
            of, share = measured[kind], min(1.0, function_sizes.memory(function, nodes) / FULL_VCPU)
            waiting = figures.seconds(function, by_function, kind, nodes) - of["seconds"] / share
            yield {
                "measurement": f"{function}, {kind}, {nodes:,} nodes / {CLUSTERS[nodes]:,} pods",
                "target": "-",
                "result": f"{figures.requests(of):,.1f} requests, {figures.received(of) / MB:,.2f} MB, "
                f"{of['seconds']:.2f} s of a vCPU, {waiting:.2f} s waiting",
                "method": f"most bytes: {figures.largest(of)}",
            }
        yield {
            "measurement": f"{function}, {nodes:,} nodes: listed twice in an invocation; memory after all of them",
            "target": "none",
            "result": f"{', '.join(measured['listed_twice']) or 'none'}; {measured['mib']:.0f} MiB",
            "method": f"without imports; {measured['first_mib']:.0f} MiB after the first invocation",
        }


def _hour_rows(nodes: int, by_function: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    pods = CLUSTERS[nodes]
    for kind in (IDLE, BUSY):
        number, size = figures.an_hour(by_function, kind)
        changed = f"{replaced_a_minute(pods):,} pods replaced a minute" if kind == BUSY else "only kubelets report"
        yield {
            "measurement": f"an hour, {kind}, {nodes:,} nodes / {pods:,} pods",
            "target": "-",
            "result": f"{number:,.0f} requests, {size / MB:,.0f} MB",
            "method": f"{INVOCATIONS_AN_HOUR} invocations of each function; {changed}",
        }
        watched = received(nodes, pods, busy=kind == BUSY)
        yield {
            "measurement": f"an hour, {kind}, {nodes:,} nodes: Karpenter's watches",
            "target": "-",
            "result": f"{watched.events:,.0f} events, {watched.bytes_an_hour / MB:,.0f} MB",
            "method": f"computed, not measured; two replicas; the lists before: {watched.listed_bytes / MB:,.0f} MB",
        }


def _cost_rows(nodes: int, by_function: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    for name, usd in cost.totals(by_function, nodes).items():
        target = f"at most ${cost.TARGETS[nodes]}" if nodes in cost.TARGETS else "-"
        yield {
            "measurement": f"a month, {name}, {nodes:,} nodes / {CLUSTERS[nodes]:,} pods",
            "target": target,
            "result": f"${usd:.2f}",
            "method": "billed time of measured invocations, 60 an hour; with the relay function",
        }


def main() -> None:
    """Print the tables and draw the pictures."""
    sys.stdout.write(f"{requests_table()}\n\n{invocations_table()}\n\n{cost_table()}\n\n")
    for path in pictures.save(saved_results()):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
