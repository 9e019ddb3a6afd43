"""``tenon pause`` and ``tenon resume``: the cluster's nodes stay as they are, but for what interruptions force."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from cli.cluster import source  # noqa: TC001 (typer reads the annotations when it runs)
from cli.errors import UsageError, errors_as_one_line
from cli.progress import progress

if TYPE_CHECKING:
    from datetime import timedelta

    from cli.cluster.cluster_reference import ClusterReference
    from shared.cluster.client import Client

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The EKS cluster's name, as --cluster; default: from the context.")
]
For = Annotated[
    str, typer.Option("--for", metavar="TIME", help="How long, such as 30m or 2h; default: until `tenon resume`.")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is shown with the pause.")]


def pause(
    name: Name = "",
    for_: For = "",
    reason: Reason = "",
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    as_json: source.Json = False,
) -> None:
    """Pause the cluster: nothing is launched, disrupted or terminated, unless an interruption forces it.

    Drains that have begun continue, and nodes that you delete go. Pausing again changes the end and the reason.

    For example:

      tenon pause prod --for 2h --reason "incident 4711"
    """
    with errors_as_one_line("pause"):
        with progress("Pausing"):
            from cli import json_output  # noqa: PLC0415 (slow to import, and --help doesn't need it)
            from cli.cluster import live_reader  # noqa: PLC0415 (the same)
            from cli.pause_outcome import PauseOutcome  # noqa: PLC0415 (the same)
            from shared.api.pause import pause_annotations  # noqa: PLC0415 (the same)
            from shared.base import runtime  # noqa: PLC0415 (the same)
            from shared.cluster.cluster_pause import stored_pause, write_annotations  # noqa: PLC0415 (the same)

            duration = _duration(for_)
            reference = _reference(name, context=context, cluster=cluster, region=region)
            client = live_reader.connect(reference)
            now = runtime.current().now()
            before = stored_pause(client, cluster=reference.cluster, now=now)
            annotations = pause_annotations(
                since=before.since or now if before is not None else now,
                until=now + duration if duration is not None else None,
                by=_user(client),
                reason=reason,
            )
            write_annotations(client, annotations, cluster=reference.cluster)
            after = stored_pause(client, cluster=reference.cluster, now=now)
            message = after.message if after is not None else "the cluster was resumed at the same time"
        if as_json:
            outcome = PauseOutcome(cluster=reference.cluster, paused=after is not None, message=message)
            typer.echo(json_output.text("pause", outcome))
        else:
            typer.echo(f"{reference.cluster}: {message}")


def resume(
    name: Name = "",
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    as_json: source.Json = False,
) -> None:
    """End the cluster's pause, and close the circuit breaker of launches; Tenon continues within a minute.

    Pauses of single NodePools (annotation tenon.sh/paused) stay.

    For example:

      tenon resume prod
    """
    with errors_as_one_line("resume"):
        with progress("Resuming"):
            from cli import json_output  # noqa: PLC0415 (slow to import, and --help doesn't need it)
            from cli.cluster import live_reader  # noqa: PLC0415 (the same)
            from cli.pause_outcome import ResumeOutcome  # noqa: PLC0415 (the same)
            from shared.api.pause import NO_PAUSE  # noqa: PLC0415 (the same)
            from shared.base import runtime  # noqa: PLC0415 (the same)
            from shared.cluster.cluster_pause import stored_pause, write_annotations  # noqa: PLC0415 (the same)

            reference = _reference(name, context=context, cluster=cluster, region=region)
            client = live_reader.connect(reference)
            before = stored_pause(client, cluster=reference.cluster, now=runtime.current().now())
            write_annotations(client, NO_PAUSE, cluster=reference.cluster)
            message = f"resumed ({before.message})" if before is not None else "was not paused"
            closed = _close_breakers(reference)
        if as_json:
            outcome = ResumeOutcome(cluster=reference.cluster, paused=False, message=message, breakers=closed)
            typer.echo(json_output.text("resume", outcome))
        else:
            typer.echo(f"{reference.cluster}: {message}")
            for line in closed:
                typer.echo(f"{reference.cluster}: {line}")


def _close_breakers(reference: ClusterReference) -> list[str]:
    """Forget failed launches; returns what was done, or why it wasn't."""
    import boto3  # noqa: PLC0415 (slow to import)
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 (the same)

    from cli.cluster import live_reader  # noqa: PLC0415 (the same)
    from shared.base import aws, runtime  # noqa: PLC0415 (the same)
    from shared.launch import boot_failures  # noqa: PLC0415 (the same)

    try:
        with live_reader.read_only_aws(reference):
            deployment = live_reader.find_deployment(reference.cluster)
            if deployment is None:
                return []
            now = runtime.current().now()
            failures = boot_failures.current(aws.dynamodb(), deployment.table, now=now)
        dynamodb = boto3.client("dynamodb", region_name=reference.region or None)
        for pool, node_class in failures:
            dynamodb.delete_item(TableName=deployment.table, Key=boot_failures.row_key(pool, node_class))
    except (BotoCoreError, ClientError) as error:
        return [f"the circuit breaker of launches isn't closed: {error}"]
    return [f"the circuit breaker of NodePool {pool} is closed" for pool, _ in sorted(failures)]


def _reference(name: str, *, context: str, cluster: str, region: str) -> ClusterReference:
    from cli.cluster import live_reader  # noqa: PLC0415 (slow to import)
    from cli.cluster.cluster_reference import ClusterReference, resolve  # noqa: PLC0415 (next to its use)

    if name and cluster and name != cluster:
        raise UsageError(f'NAME "{name}" and --cluster "{cluster}" differ')
    reference = resolve(ClusterReference(context=context, cluster=name or cluster, region=region))
    if not reference.cluster:
        raise UsageError(live_reader.NO_CLUSTER_NAME)
    return reference


def _duration(text: str) -> timedelta | None:
    from shared.api.duration import DurationError, parse_duration  # noqa: PLC0415 (slow to import)

    if not text:
        return None
    try:
        duration = parse_duration(text)
    except DurationError as error:
        raise UsageError(f"--for: {error}") from error
    if duration is not None and not duration:
        raise UsageError("--for: a pause of no length; `tenon resume` ends one")
    return duration


def _user(client: Client) -> str:
    """Who the API server says we are; the user of this machine if it can't say (before Kubernetes 1.28)."""
    import getpass  # noqa: PLC0415 (next to its use)

    from shared.cluster.errors import ApiError  # noqa: PLC0415 (slow to import)

    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = json.loads(client.create(path, review))
    except ApiError:
        return getpass.getuser()
    return str(answer.get("status", {}).get("userInfo", {}).get("username", "")) or getpass.getuser()
