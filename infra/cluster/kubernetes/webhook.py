"""The admission webhook of ``-c relay=webhook``: its secret path, the function's URL, and its configuration."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from aws_cdk import CustomResource
from aws_cdk import aws_lambda as lambda_

from infra.cluster.kubernetes import cluster_manifests, deployment_access, webhook_configuration
from infra.cluster.kubernetes.deployment_function import DeploymentFunction

if TYPE_CHECKING:
    from constructs import Construct, IDependable

    from infra.options.stack_options import StackOptions

_REVISION = hashlib.sha256(json.dumps(webhook_configuration.configuration("")).encode()).hexdigest()[:12]


class WebhookConfiguration(DeploymentFunction):
    """The function that generates the path and applies the configuration, and the path's ``digest``.

    The path is a resource of its own: the webhook function needs its digest, and the configuration needs the function.
    """

    def __init__(self, scope: Construct, id_: str, *, options: StackOptions) -> None:
        super().__init__(
            scope,
            id_,
            module="webhook_configuration",
            purpose=f"the admission webhook's path and configuration in EKS cluster {options.cluster}",
            group=cluster_manifests.group(deployment_access.WEBHOOK_CONFIGURATION),
            options=options,
        )
        self._path = CustomResource(
            self,
            "Path",
            resource_type=webhook_configuration.PATH_TYPE,
            service_token=self.function.function_arn,
        )
        self.digest = self._path.get_att_string("Digest")

    def apply(self, url: lambda_.FunctionUrl, *, after: IDependable) -> None:
        """Apply the configuration with this URL to the cluster, once the function may."""
        configuration = CustomResource(
            self,
            "Configuration",
            resource_type=webhook_configuration.CONFIGURATION_TYPE,
            service_token=self.function.function_arn,
            # The revision has the resource updated when a new version's configuration differs.
            properties={"Url": f"{url.url}{self._path.get_att_string('Path')}", "Revision": _REVISION},
        )
        configuration.node.add_dependency(self.entry, after)


def public_url(function: lambda_.Function) -> lambda_.FunctionUrl:
    """The function's URL, which anybody can call: an API server can't sign requests for IAM."""
    return function.add_function_url(auth_type=lambda_.FunctionUrlAuthType.NONE)
