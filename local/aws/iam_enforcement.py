"""IAM in front of moto: the calls of functions and the relay must be allowed by their deployed roles.

Each function signs with its own access key, as on Lambda, so its calls and its token for the Kubernetes API identify
it. Callers with another key (the world itself, tests) have all permissions.
"""

from __future__ import annotations

import contextlib
import json
from io import BytesIO
from typing import TYPE_CHECKING, Any

from botocore.awsrequest import AWSResponse
from botocore.credentials import Credentials
from botocore.session import Session

from local.aws import backends, iam_actions, iam_policies
from local.aws.calls import CALLER
from local.aws.iam_context import CallContext
from shared.base.struct import Struct

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping

    import boto3

    from local.aws.iam_policies import Request, Statement

_ACCESS_KEY_PREFIX = "ASIA"
_SECRET = "local"  # noqa: S105 - nothing here checks a signature
_ERROR_CODES = {
    "ec2": "UnauthorizedOperation",
    "iam": "AccessDenied",
    "s3": "AccessDenied",
    "sqs": "AccessDenied",
    "autoscaling": "AccessDenied",
}
_PREFIXES = {"eventbridge": "events", "auto-scaling": "autoscaling"}
"""The prefixes of actions that differ from botocore's name of the service."""
_DEFAULT_ERROR_CODE = "AccessDeniedException"


def access_key(caller: str) -> str:
    """The access key of a function, by its folder's name, or of the ``relay``."""
    return f"{_ACCESS_KEY_PREFIX}{caller.upper()}"


def credentials(caller: str) -> Credentials:
    """The credentials of a caller."""
    return Credentials(access_key(caller), _SECRET)


@contextlib.contextmanager
def function_credentials() -> Iterator[None]:
    """While entered, code that runs as a function signs with the function's credentials."""
    original = Session.get_credentials

    def get_credentials(session: Session) -> Any:
        caller = CALLER.get()
        return credentials(caller) if caller else original(session)

    with backends.replaced(Session, "get_credentials", get_credentials):
        yield


class DeniedCall(Struct, kw_only=True):
    """A denied call, and the first of its IAM requests that no policy allows."""

    caller: str
    service: str
    operation: str
    request: Request

    def __str__(self) -> str:
        context = {key: values for key, values in self.request.context.items() if not key.startswith("aws:Requested")}
        return f"{self.caller} called {self.service} {self.operation} without permission for {self.request} ({context})"


class IamEnforcement:
    """The enforced roles, and the denied calls."""

    def __init__(
        self, *, region: str, lock: threading.RLock, hides_tags: Callable[[str], bool] = lambda _id: False
    ) -> None:
        """``hides_tags`` tells by its id whether an instance is so new that IAM doesn't see its tags."""
        self._hides_tags = hides_tags
        self.context = CallContext(
            account=backends.ACCOUNT, region=region, resources=MotoResources(region=region, hides_tags=hides_tags)
        )
        self._lock = lock
        self._callers: dict[str, str] = {}
        self._statements: dict[str, tuple[Statement, ...]] = {}
        self.denied: list[DeniedCall] = []
        self.denied_too_early: list[DeniedCall] = []
        """Those about new instances whose tags IAM doesn't see yet."""

    def enforce(self, roles: Mapping[str, str]) -> None:
        """Enforce the role of each caller, by name, from now on; the policies are read now."""
        for caller, role in roles.items():
            self._callers[access_key(caller)] = caller
            self._statements[caller] = role_statements(role)

    def deny(self, caller: str, *actions: str) -> None:
        """Deny a caller these actions from now on, whatever its role allows, as a service control policy does.

        Raises:
            KeyError: there is no such caller.
        """
        denial = {"Effect": "Deny", "Action": list(actions), "Resource": iam_policies.ANY}
        self._statements[caller] = (*self._statements[caller], *iam_policies.parse({"Statement": [denial]}))

    def statements(self, caller: str) -> tuple[Statement, ...]:
        """The policy statements of a caller's role.

        Raises:
            KeyError: there is no such caller.
        """
        return self._statements[caller]

    def guard(self, session: boto3.Session) -> None:
        """Check the calls of all clients that the session creates from now on."""
        session.events.register("before-parameter-build.*.*", _store_params)
        session.events.register("before-call.*.*", self)  # type: ignore[arg-type]  # typed as if handlers answered nothing

    def __call__(
        self,
        *,
        event_name: str,
        model: Any,
        request_signer: Any,
        context: dict[str, Any],
        **_: object,
    ) -> tuple[AWSResponse, dict[str, Any]] | None:
        """Deny a call, as botocore's handler of ``before-call.SERVICE.OPERATION``; None allows it."""
        signing_key = getattr(request_signer._credentials, "access_key", "")  # noqa: SLF001 - botocore offers no other way
        caller = self._callers.get(signing_key)
        if caller is None:
            return None
        service = event_name.split(".")[1].lower()
        service = _PREFIXES.get(service, service)
        denied = self.first_denied(caller, service, model.name, context[_PARAMS])
        if denied is None:
            return None
        call = DeniedCall(caller=caller, service=service, operation=model.name, request=denied)
        (self.denied_too_early if self._is_too_new(denied) else self.denied).append(call)
        return _access_denied(
            service, f"{caller} is not authorized to perform: {denied.action} on resource: {denied.resource}"
        )

    def _is_too_new(self, request: Request) -> bool:
        """Whether the request is about an instance whose tags IAM doesn't see yet: no fault of the caller's."""
        with self._lock:
            return self._hides_tags(request.resource.rpartition("/")[2])

    def first_denied(self, caller: str, service: str, operation: str, params: Mapping[str, Any]) -> Request | None:
        """The first of the call's IAM requests that the caller's role doesn't allow; None: all are allowed."""
        with self._lock:
            requests = iam_actions.requests(service, operation, params, self.context)
        statements = self._statements[caller]
        return next((request for request in requests if not iam_policies.allows(request, identity=statements)), None)


def role_statements(role: str) -> tuple[Statement, ...]:
    """The statements of a role's policies."""
    return tuple(statement for document in role_documents(role) for statement in iam_policies.parse(document))


def role_documents(role: str) -> list[dict[str, Any]]:
    """The documents of a role's inline policies, and of the account's own managed ones that are attached to it.

    The CDK puts what an inline policy has no room for into managed policies.
    """
    moto_role = backends.iam().get_role(role)
    own = [policy for arn, policy in moto_role.managed_policies.items() if f"::{backends.ACCOUNT}:" in arn]
    attached = [v.document for policy in own for v in policy.versions if v.version_id == policy.default_version_id]
    return [json.loads(text) for text in (*moto_role.policies.values(), *attached)]


class MotoResources(Struct, kw_only=True):
    """The resources in moto's backends; moto's lock must be held."""

    region: str
    hides_tags: Callable[[str], bool] = lambda _id: False

    def tags(self, resource_id: str) -> dict[str, str]:
        """See :class:`iam_context.ResourceLookup`."""
        if self.hides_tags(resource_id):
            return {}
        return dict(backends.ec2(self.region).tags.get(resource_id, {}))

    def template(self, name_or_id: str) -> tuple[str, Mapping[str, Any]]:
        """See :class:`iam_context.ResourceLookup`."""
        backend = backends.ec2(self.region)
        ids = backend.launch_template_name_to_ids
        id_ = name_or_id if name_or_id in backend.launch_templates else ids.get(name_or_id, "")
        template = backend.launch_templates.get(id_)
        return (id_, template.versions[-1].data) if template is not None else ("", {})

    def role_of(self, profile: str) -> str:
        """See :class:`iam_context.ResourceLookup`."""
        for instance_profile in backends.iam().instance_profiles.values():
            if instance_profile.name == profile and instance_profile.roles:
                return str(instance_profile.roles[0].arn)
        return ""

    def auto_scaling_group(self, name: str) -> tuple[str, dict[str, str]]:
        """See :class:`iam_context.ResourceLookup`."""
        group = backends.autoscaling(self.region).autoscaling_groups.get(name)
        if group is None:
            return "", {}
        return str(group._id), {tag["Key"]: tag.get("Value", "") for tag in group.tags}  # noqa: SLF001 - only in its ARN

    def group_of_instance(self, instance_id: str) -> str:
        """See :class:`iam_context.ResourceLookup`."""
        for group in backends.autoscaling(self.region).autoscaling_groups.values():
            if any(member.instance_id == instance_id for member in group.instance_states):
                return str(group.name)
        return ""

    def node_group_id(self, cluster: str, name: str) -> str:
        """See :class:`iam_context.ResourceLookup`."""
        eks_cluster = backends.eks(self.region).clusters.get(cluster)
        node_group = eks_cluster.nodegroups.get(name) if eks_cluster is not None else None
        return str(node_group.uuid) if node_group is not None else ""

    def object_exists(self, bucket: str, key: str) -> bool:
        """See :class:`iam_context.ResourceLookup`."""
        s3_bucket = backends.s3().buckets.get(bucket)
        return s3_bucket is not None and key in s3_bucket.keys


_PARAMS = "tenon_params"


def _store_params(params: dict[str, Any], context: dict[str, Any], **_: object) -> None:
    context[_PARAMS] = params


def _access_denied(service: str, message: str) -> tuple[AWSResponse, dict[str, Any]]:
    status, code = 403, _ERROR_CODES.get(service, _DEFAULT_ERROR_CODE)
    body: Any = BytesIO()
    headers: Any = {}
    parsed = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return AWSResponse("", status, headers, body), parsed
