"""EC2's ModifyInstanceAttribute for protection against termination and the behaviour at shutdown.

moto stores the words "true" and "false", and protects by neither. As EC2 does, it protects no spot instance (EC2 user
guide, "Change instance termination protection"); which error code that has isn't documented.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from local.aws import backends

if TYPE_CHECKING:
    from local.aws.interceptor import RawResponse

_DONE = b"<ModifyInstanceAttributeResponse><return>true</return></ModifyInstanceAttributeResponse>"
_ERROR = "<Response><Errors><Error><Code>{}</Code><Message>{}</Message></Error></Errors></Response>"


def modify(region: str, body: bytes) -> RawResponse:
    """The answer to a request.

    Raises:
        LookupError: it modifies another attribute.
    """
    request = {name: values[0] for name, values in parse_qs(body.decode()).items()}
    instance = _instance(region, request["InstanceId"])
    if instance is None:
        return _refused("InvalidInstanceID.NotFound", f"The instance ID '{request['InstanceId']}' does not exist")
    if protected := request.get("DisableApiTermination.Value"):
        if protected == "true" and instance.lifecycle == "spot":
            return _refused("UnsupportedOperation", "Termination protection isn't supported for spot instances")
        instance.disable_api_termination = protected == "true"
    elif behavior := request.get("InstanceInitiatedShutdownBehavior.Value"):
        instance.instance_initiated_shutdown_behavior = behavior
    else:
        raise LookupError(f"ModifyInstanceAttribute of {sorted(request)} is not supported here")
    return 200, {}, _DONE


def _instance(region: str, instance_id: str) -> Any:
    reservations = backends.ec2(region).all_reservations()
    return next((i for r in reservations for i in r.instances if i.id == instance_id), None)


def _refused(code: str, message: str) -> RawResponse:
    return 400, {}, _ERROR.format(code, message).encode()
