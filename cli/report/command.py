"""``tenon report``: an HTML page of a recorded run, or of a cluster by its decision log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.cluster import source
from cli.errors import UsageError, errors_as_one_line
from cli.progress import progress


def report(
    recording: Annotated[
        Path | None,
        typer.Argument(metavar="RECORDING", help="A file of `tenon demo --record`; default: the live cluster."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    days: Annotated[
        float, typer.Option(metavar="NUMBER", min=0.01, max=90, help="Days of the decision log to show.")
    ] = 7.0,
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
) -> None:
    """Write one HTML page: nodes over time, cost with its lower bound, pending pods, and decisions with reasons.

    The page makes no network requests. The cluster is only read.

    For example:

      tenon demo --record run.json && tenon report run.json -o run.html
      tenon report --days 2 -o cluster.html
    """
    with errors_as_one_line("report"):
        from cli.report import recording as recordings  # noqa: PLC0415 (slow to import, and --help doesn't need it)
        from shared.base.plurals import plural  # noqa: PLC0415 (the same)

        if recording is not None:
            recorded = recordings.read(recording)
        else:
            from datetime import timedelta  # noqa: PLC0415 (next to the others)

            from cli.report import cluster_recording  # noqa: PLC0415 (slow to import)

            with source.open_cluster(None, context=context, cluster=cluster, region=region, aws=False) as observed:
                recorded = cluster_recording.recording(observed, period=timedelta(days=days))
        counts = f"{plural(len(recorded.spans), 'node')}, {plural(len(recorded.decisions), 'decision')}"
        typer.echo(f"{save(recorded, output)}: {counts}")


def save(recording: object, output: Path) -> Path:
    """Write the HTML page.

    Raises:
        UsageError: the file can't be written.
    """
    with progress("Writing the page"):
        from cli.report.page import page  # noqa: PLC0415 (slow to import)
        from cli.report.recording import Recording  # noqa: PLC0415 (the same)

        assert isinstance(recording, Recording)
        try:
            output.write_text(page(recording), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{output}: {error.strerror or error}") from error
    return output
