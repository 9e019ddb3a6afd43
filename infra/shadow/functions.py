"""The functions of shadow mode, with their roles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constructs import Construct

from functions.shadow.settings import pack
from infra import function_sizes
from infra.cluster.functions import make_function, variables
from infra.cluster.permission_scope import ReadScope
from infra.shadow.permissions import shadow_statements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_cdk import aws_lambda as lambda_
    from aws_cdk import aws_s3 as s3

    from infra.options.stack_options import StackOptions


class ShadowFunctions(Construct):
    """The functions of shadow mode, by name."""

    def __init__(
        self, scope: Construct, id_: str, *, options: StackOptions, catalog: s3.Bucket, code: Mapping[str, str]
    ) -> None:
        super().__init__(scope, id_)
        self.by_name: dict[str, lambda_.Function] = {}
        on = ReadScope(cluster=options.cluster, scope=self, catalog=catalog)
        values = {
            "cluster_name": options.cluster,
            "catalog_bucket": catalog.bucket_name,
            "shadow_interval": str(options.shadow_interval),
            "shadow_pools": pack([dict(o) for o in options.shadow_pools]) if options.shadow_pools else "",
        }
        for name in options.functions:
            self.by_name[name], role, _ = make_function(
                self,
                name,
                options=options,
                code=code[name],
                environment=variables(name, values, options),
                statements=shadow_statements(name, on),
            )
            if name == function_sizes.SHADOW:
                self.shadow_role_arn = role.role_arn
