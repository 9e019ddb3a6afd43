"""The page of pods' scheduling constraints: each example with the decision that the scheduling core makes for it.

An example is a file of ``docs/examples/constraints``. Its leading comment is the title and the text of its section; its
manifests are decided for the cluster of ``cluster.yaml``, so the page can't say what doesn't happen.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cli import problem_files
from docs.markdown import table
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from shared.scheduling.decision import Decision

EXAMPLES = Path(__file__).resolve().parent / "examples" / "constraints"
_CLUSTER = EXAMPLES / "cluster.yaml"
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_INTRODUCTION = """\
# Scheduling constraints

All constraints that kube-scheduler knows are respected, with the same meaning. Each section has an example and the
nodes that are launched for it, in a cluster without nodes, with [one NodePool and eleven instance types]({cluster}) of
eu-west-1.

Try them, or your own: `tenon simulate docs/examples/constraints/cluster.yaml FILE`. With your own cluster and EC2's
prices: `tenon plan -f FILE`. How the cheapest nodes are chosen: [scheduling decisions](scheduling.md)."""


class ExampleError(RuntimeError):
    """An example has an object that can't be read."""


def page() -> str:
    """The page, in Markdown."""
    sections = [_section(path) for path in sorted(EXAMPLES.glob("[0-9]*.yaml"))]
    return "\n\n".join([_INTRODUCTION.format(cluster="examples/constraints/cluster.yaml"), *sections])


def decision(path: Path) -> Decision:
    """The decision for an example.

    Raises:
        ExampleError: the example has an invalid object.
    """
    read = problem_files.simulation_input(problem_files.read([_CLUSTER, path]), now=_NOW)
    if read.invalid or read.refused or read.notes:
        raise ExampleError(f"{path.name}: {read.invalid or read.refused or read.notes}")
    return schedule(read.problem)


def _section(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    title, *text = [line.removeprefix("#").removeprefix(" ") for line in lines[:comment]]
    manifest = "\n".join(lines[comment:])
    return f"## {title}\n" + "\n".join(text) + f"\n\n```yaml\n{manifest}\n```\n\n" + _outcome(decision(path))


def _outcome(decided: Decision) -> str:
    lines: list[str] = []
    if decided.new_node_claims:
        rows: list[tuple[str, ...]] = []
        for claim in decided.new_node_claims:
            cheapest, pods = claim.cheapest, ", ".join(sorted(key.partition("/")[2] for key in claim.pods))
            kind = f"{cheapest.instance_type}, {cheapest.capacity_type}"
            rows.append((claim.node_pool, kind, cheapest.zone, f"{cheapest.price:.4f}", pods))
        lines += table(("NodePool", "node", "zone", "USD/h", "pods"), rows)
    lines += [
        f"Pending: `{key.partition('/')[2]}`: {error.message}" for key, error in sorted(decided.pod_errors.items())
    ]
    return "\n".join(lines)
