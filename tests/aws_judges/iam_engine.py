"""Requests to IAM, judged by an engine on AWS's service authorization reference.

The engine knows which resource types and condition keys an action has, so it also refuses requests that IAM would
never see: those are mistakes of the local IAM's list of what a call asks for.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from local.aws import backends
from local.aws.iam_enforcement import role_documents
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from local.aws.iam_policies import Request

Policies = dict[str, list[dict[str, Any]]]
"""The policy documents of each role."""
_SECONDS = 300
_MULTIVALUED = "aws:TagKeys"
_ANOTHER_ACCOUNT = "210987654321"
BEYOND = {
    "ssm:GetParameter": "public parameters have no account in their ARN, which the reference's pattern lacks",
    "ssm:GetParameters": "the same",
    "ssm:PutParameter": "the same",
    "ssm:DeleteParameter": "the same",
}
"""The actions whose requests the engine may refuse to judge, and why."""


class Verdict(Struct, kw_only=True):
    """What the engine says about one request.

    ``error``: why there is no such request; ``ignored``: keys of it that its action and resource don't have.
    """

    allowed: bool
    error: str
    ignored: tuple[str, ...]


def policies_of(roles: Mapping[str, str]) -> Policies:
    """The policies of roles in the local AWS, by what calls with them; ``roles`` has their names."""
    return {caller: role_documents(role) for caller, role in roles.items()}


def verdicts_of(engine: Path, policies: Policies, requests: Sequence[tuple[str, Request]]) -> list[Verdict]:
    """A verdict for each request of a caller, in their order."""
    written = [json.dumps(_written(caller, request), sort_keys=True) for caller, request in requests]
    once = list(dict.fromkeys(written))
    problem = {
        "account": backends.ACCOUNT,
        "policies": policies,
        "requests": [json.loads(text) for text in once],
    }
    done = subprocess.run(
        ["node", "simulate.mjs"],
        cwd=engine,
        input=json.dumps(problem),
        capture_output=True,
        text=True,
        check=True,
        timeout=_SECONDS,
    )
    answers = dict(zip(once, json.loads(done.stdout), strict=True))
    return [_verdict(answers[text]) for text in written]


def _verdict(answer: Mapping[str, Any]) -> Verdict:
    return Verdict(
        allowed=answer["result"] == "Allowed", error=answer["error"], ignored=tuple(sorted(set(answer["ignored"])))
    )


def _written(caller: str, request: Request) -> dict[str, Any]:
    """The request as the engine takes it: one resource that is going to be created, not the pattern of all."""
    resource = request.resource
    if resource != "*":
        resource = resource.replace(":*:subnet", f":{_ANOTHER_ACCOUNT}:subnet").replace("*", "judged")
    context = {
        key: list(values) if key == _MULTIVALUED or len(values) > 1 else values[0]
        for key, values in request.context.items()
        if values
    }
    return {"role": caller, "action": request.action, "resource": resource, "context": context}
