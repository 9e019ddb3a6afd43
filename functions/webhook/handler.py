"""The handler of the webhook's function URL: allows every pod at once, and says that there are new ones.

It is on the way of each new pod, so it starts quickly: it has no logger, metrics or Kubernetes client. The URL is
public; a request whose path isn't the secret one ends before its body is read. Pods that are created within the same
two seconds share one message: each execution environment remembers what it has sent, and the queue drops duplicates
of the others.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from functions.webhook.admission_review import CreatedPod, MalformedReviewError, allowed, created_pod
from functions.webhook.settings import WebhookSettings
from shared.base import aws, hints, runtime
from shared.base.settings import read

if TYPE_CHECKING:
    from datetime import datetime

BATCH_SECONDS = 2
"""Pods that are created in the same interval of this length share one message."""
_LAST_BATCH = "webhook:last-batch"


def handle(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Answer a request to the function URL: 404 for another path, 400 for another body, else a review that allows."""
    current = runtime.current()
    settings = current.cached("webhook:settings", lambda: read(WebhookSettings, current.environ))
    if not _is_secret(str(event.get("rawPath", "")), settings.webhook_digest):
        return {"statusCode": 404}
    try:
        pod = created_pod(str(event.get("body") or ""), is_base64=bool(event.get("isBase64Encoded")))
    except MalformedReviewError as error:
        _log("A request was refused", why=str(error))
        return {"statusCode": 400}
    if pod.may_need_node:
        _announce(pod, settings, current.now())
    return {"statusCode": 200, "headers": {"Content-Type": "application/json"}, "body": allowed(pod)}


def _is_secret(path: str, digest: str) -> bool:
    """Whether it is the secret path. Digests are compared, in constant time, so that the time tells nothing."""
    return hmac.compare_digest(hashlib.sha256(path.strip("/").encode()).hexdigest(), digest)


def _announce(pod: CreatedPod, settings: WebhookSettings, now: datetime) -> None:
    """Send one message for the pods of these seconds; without it, the sweep of the next minute finds them."""
    batch = int(now.timestamp()) // BATCH_SECONDS
    cache = runtime.current().cache
    if cache.get(_LAST_BATCH) == batch:
        return
    [body] = hints.message_bodies(
        hints.PODS_CREATED, cluster=settings.cluster_name, keys=[pod.key], time=now, source=hints.WEBHOOK
    )
    try:
        aws.sqs_short_timeout().send_message(
            QueueUrl=settings.provisioning_queue_url,
            MessageBody=body,
            MessageGroupId=f"{settings.cluster_name}-created",
            MessageDeduplicationId=f"created-{batch}",
        )
    except (BotoCoreError, ClientError) as error:
        _log("The hint was not sent", pod=pod.key, error=type(error).__name__)
        return
    cache[_LAST_BATCH] = batch
    _log("Pods are created", pod=pod.key)


def _log(message: str, **fields: str) -> None:
    sys.stdout.write(json.dumps({"level": "INFO", "service": "webhook", "message": message, **fields}) + "\n")


if "AWS_LAMBDA_INITIALIZATION_TYPE" in os.environ:
    # Lambda gives the import a whole processor, and later requests a fraction of one.
    aws.sqs_short_timeout()
