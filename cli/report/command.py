"""``tenon report``: a page of a recorded run, or of a cluster by its decision log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.cluster import source
from cli.errors import UsageError, errors_as_one_line


def report(
    recording: Annotated[
        Path | None, typer.Argument(help="What `tenon demo --record` wrote; without it, the cluster is asked.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
    days: Annotated[float, typer.Option(min=0.01, max=90, help="How far back to go in the decision log.")] = 7.0,
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
) -> None:
    """Write one HTML page: nodes over time, cost against the least possible, pending pods, and decisions with reasons.

    The page needs no network; the cluster is only read.

    For example:

      tenon demo --record run.json && tenon report run.json -o run.html

      tenon report --days 2 -o cluster.html
    """
    with errors_as_one_line("report"):
        from cli.report import recording as recordings  # noqa: PLC0415 (slow to import, and --help doesn't need it)

        if recording is not None:
            made = recordings.read(recording)
        else:
            from datetime import timedelta  # noqa: PLC0415 (beside the others)

            from cli.report import cluster_recording  # noqa: PLC0415 (slow to import)

            with source.open_cluster(None, context=context, cluster=cluster, region=region, aws=False) as observed:
                made = cluster_recording.recording(observed, back=timedelta(days=days))
        typer.echo(f"{save(made, output)}: {len(made.spans)} nodes, {len(made.decisions)} decisions")


def save(made: object, output: Path) -> Path:
    """Write the page.

    Raises:
        UsageError: it can't be written there.
    """
    from cli.report.page import page  # noqa: PLC0415 (slow to import)
    from cli.report.recording import Recording  # noqa: PLC0415 (the same)

    assert isinstance(made, Recording)
    try:
        output.write_text(page(made), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror or error}") from error
    return output
