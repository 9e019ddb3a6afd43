"""IAM in front of moto: every call that a function or the relay makes must be allowed by its role, as it was deployed.

Each function signs with an access key of its own, as on Lambda, so that its clients, and the token that it makes for
the Kubernetes API, say whose they are. Whoever signs with another key (the world itself, tests) is the account's owner.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import boto3
from botocore.awsrequest import AWSResponse
from botocore.credentials import Credentials
from botocore.session import Session

from local.aws import backends, iam_actions, iam_policies
from local.aws.calls import CALLER
from local.aws.iam_actions import Account

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping

    from local.aws.iam_policies import Request, Statement

_PREFIX = "ASIA"
_SECRET = "local"  # noqa: S105 - nothing here checks a signature
_CODES = {"ec2": "UnauthorizedOperation", "iam": "AccessDenied", "s3": "AccessDenied", "sqs": "AccessDenied"}
_CODE = "AccessDeniedException"


def access_key(caller: str) -> str:
    """The access key that a function signs with, by its folder's name; also ``relay``."""
    return f"{_PREFIX}{caller.upper()}"


def credentials(caller: str) -> Credentials:
    """What a caller signs with."""
    return Credentials(access_key(caller), _SECRET)


@contextlib.contextmanager
def own_credentials() -> Iterator[None]:
    """While entered, what runs as a function signs with the function's credentials."""
    usual = Session.get_credentials

    def get_credentials(session: Session) -> Any:  # noqa: ANN401 - botocore's Credentials, or None
        caller = CALLER.get()
        return credentials(caller) if caller else usual(session)

    with backends.replaced(Session, "get_credentials", get_credentials):
        yield


@dataclass(frozen=True, kw_only=True)
class DeniedCall:
    """A call that was refused, and the first thing of it that no policy allows."""

    caller: str
    service: str
    operation: str
    request: Request

    def __str__(self) -> str:
        context = {key: values for key, values in self.request.context.items() if not key.startswith("aws:Requested")}
        return f"{self.caller} called {self.service} {self.operation}, and may not {self.request} ({context})"


class IamEnforcement:
    """The roles that are enforced, and what was denied."""

    def __init__(self, *, region: str, lock: threading.RLock) -> None:
        self.account = Account(account=backends.ACCOUNT, region=region, facts=MotoFacts(region=region))
        self._lock = lock
        self._roles: dict[str, str] = {}
        self._statements: dict[str, tuple[Statement, ...]] = {}
        self.denied: list[DeniedCall] = []

    def enforce(self, roles: Mapping[str, str]) -> None:
        """From now on each caller may do what its role, by name, allows; the policies are read now."""
        for caller, role in roles.items():
            self._roles[access_key(caller)] = caller
            self._statements[caller] = role_statements(role)

    def statements(self, caller: str) -> tuple[Statement, ...]:
        """What a caller's role says; KeyError if nobody of that name is known."""
        return self._statements[caller]

    def guard(self, session: boto3.Session) -> None:
        """Have all clients that the session makes from now on ask here first."""
        session.events.register("before-parameter-build.*.*", _remember)
        session.events.register("before-call.*.*", self)  # type: ignore[arg-type]  # typed as if handlers answered nothing

    def __call__(
        self,
        *,
        event_name: str,
        model: Any,  # noqa: ANN401 - botocore's OperationModel
        request_signer: Any,  # noqa: ANN401 - botocore's RequestSigner
        context: dict[str, Any],
        **_: object,
    ) -> tuple[AWSResponse, dict[str, Any]] | None:
        """Refuse a call, as botocore's handler of ``before-call.SERVICE.OPERATION``; None lets it pass."""
        signed_with = getattr(request_signer._credentials, "access_key", "")  # noqa: SLF001 - botocore offers no other way
        caller = self._roles.get(signed_with)
        if caller is None:
            return None
        service = event_name.split(".")[1].lower().replace("eventbridge", "events")
        first = self.first_denied(caller, service, model.name, context[_PARAMS])
        if first is None:
            return None
        self.denied.append(DeniedCall(caller=caller, service=service, operation=model.name, request=first))
        return _refusal(service, f"{caller} is not authorized to perform: {first.action} on resource: {first.resource}")

    def first_denied(self, caller: str, service: str, operation: str, params: Mapping[str, Any]) -> Request | None:
        """The first thing that the call asks and the caller's role doesn't allow; None: all is allowed."""
        with self._lock:
            asked = iam_actions.requests(service, operation, params, self.account)
        mine = self._statements[caller]
        return next((one for one in asked if not iam_policies.allows(one, identity=mine)), None)


def role_statements(role: str) -> tuple[Statement, ...]:
    """Everything in a role's own policies, as they are in the account."""
    iam = boto3.client("iam")
    found: list[Statement] = []
    for page in iam.get_paginator("list_role_policies").paginate(RoleName=role):
        for name in page["PolicyNames"]:
            document: Any = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
            found += iam_policies.parse(json.loads(document) if isinstance(document, str) else document)
    return tuple(found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MotoFacts:
    """Facts from moto's backends. Called while no request is served."""

    region: str

    def tags(self, resource_id: str) -> dict[str, str]:
        """See :class:`iam_actions.Facts`."""
        return dict(backends.ec2(self.region).tags.get(resource_id, {}))

    def template(self, named: str) -> tuple[str, Mapping[str, Any]]:
        """See :class:`iam_actions.Facts`."""
        backend = backends.ec2(self.region)
        id_ = named if named in backend.launch_templates else backend.launch_template_name_to_ids.get(named, "")
        found = backend.launch_templates.get(id_)
        return (id_, found.versions[-1].data) if found is not None else ("", {})

    def role_of(self, profile: str) -> str:
        """See :class:`iam_actions.Facts`."""
        for one in backends.iam().instance_profiles.values():
            if one.name == profile and one.roles:
                return str(one.roles[0].arn)
        return ""

    def stored(self, bucket: str, key: str) -> bool:
        """See :class:`iam_actions.Facts`."""
        found = backends.s3().buckets.get(bucket)
        return found is not None and key in found.keys


_PARAMS = "tenon_params"


def _remember(params: dict[str, Any], context: dict[str, Any], **_: object) -> None:
    context[_PARAMS] = params


def _refusal(service: str, why: str) -> tuple[AWSResponse, dict[str, Any]]:
    status, code = 403, _CODES.get(service, _CODE)
    body: Any = BytesIO()
    headers: Any = {}
    parsed = {"Error": {"Code": code, "Message": why}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return AWSResponse("", status, headers, body), parsed
