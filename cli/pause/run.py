"""Runs ``tenon pause`` and ``tenon resume``: the cluster's nodes stay as they are, but for what interruptions force."""

from __future__ import annotations

import getpass
import json
from typing import TYPE_CHECKING

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from cli import json_output
from cli.cluster import live_reader
from cli.cluster.kubeconfig_context import resolve_named
from cli.errors import UsageError
from cli.pause.outcome import PauseOutcome, ResumeOutcome
from cli.printable import echo
from shared.api.duration import DurationError, parse_duration
from shared.api.pause import NO_PAUSE, pause_annotations
from shared.base import aws, runtime
from shared.cluster.cluster_pause import stored_pause, write_annotations
from shared.cluster.errors import ApiError
from shared.launch import boot_failures

if TYPE_CHECKING:
    from datetime import timedelta

    from cli.cluster.cluster_reference import ClusterReference
    from shared.cluster.client import Client


def pause(reference: ClusterReference, length: str, *, reason: str) -> PauseOutcome:
    """Pause the cluster for ``length``, such as 2h; until it is resumed if that is empty."""
    duration = _duration(length)
    reference = resolve_named(reference)
    client = live_reader.connect(reference)
    now = runtime.now()
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
    return PauseOutcome(cluster=reference.cluster, paused=after is not None, message=message)


def resume(reference: ClusterReference) -> ResumeOutcome:
    """End the cluster's pause, and close the circuit breaker of launches."""
    reference = resolve_named(reference)
    client = live_reader.connect(reference)
    before = stored_pause(client, cluster=reference.cluster, now=runtime.now())
    write_annotations(client, NO_PAUSE, cluster=reference.cluster)
    message = f"resumed ({before.message})" if before is not None else "was not paused"
    closed = _close_breakers(reference)
    return ResumeOutcome(cluster=reference.cluster, paused=False, message=message, breakers=closed)


def show(command: str, outcome: PauseOutcome | ResumeOutcome, *, as_json: bool) -> None:
    """Print the outcome of a command."""
    if as_json:
        echo(json_output.text(command, outcome))
        return
    for line in (outcome.message, *(outcome.breakers if isinstance(outcome, ResumeOutcome) else ())):
        echo(f"{outcome.cluster}: {line}")


def _close_breakers(reference: ClusterReference) -> list[str]:
    """Forget failed launches; returns what was done, or why it wasn't."""
    try:
        with live_reader.read_only_aws(reference):
            deployment = live_reader.find_deployment(reference.cluster)
            if deployment is None:
                return []
            now = runtime.now()
            failures = boot_failures.current(aws.dynamodb_with_errors(), deployment.table, now=now)
        dynamodb = boto3.client("dynamodb", region_name=reference.region or None)
        for pool, node_class in failures:
            dynamodb.delete_item(TableName=deployment.table, Key=boot_failures.row_key(pool, node_class))
    except (BotoCoreError, ClientError) as error:
        return [f"the circuit breaker of launches isn't closed: {error}"]
    return [f"the circuit breaker of NodePool {pool} is closed" for pool, _ in sorted(failures)]


def _duration(text: str) -> timedelta | None:
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
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = json.loads(client.create(path, review))
    except ApiError:
        return getpass.getuser()
    return str(answer.get("status", {}).get("userInfo", {}).get("username", "")) or getpass.getuser()
