"""``AWS::Lambda::Url`` for moto, which has function URLs but no CloudFormation resource for them.

It extends a class of moto, so it is imported when a stack is deployed.
"""

from __future__ import annotations

from typing import Any

from moto.cloudformation.parsing import get_model_map
from moto.core.common_models import CloudFormationModel

from local.aws import backends


class _Url(CloudFormationModel):  # type: ignore[misc]  # moto has no types
    """A function's URL."""

    def __init__(self, arn: str, url: str) -> None:
        self.arn = arn
        self.url = url

    @property
    def physical_resource_id(self) -> str:
        return self.arn

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::Lambda::Url"

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return attr in {"FunctionArn", "FunctionUrl"}

    def get_cfn_attribute(self, attribute_name: str) -> str:
        return {"FunctionArn": self.arn, "FunctionUrl": self.url}[attribute_name]

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,  # noqa: ARG003 - moto's own signature
        cloudformation_json: dict[str, Any],
        account_id: str,  # noqa: ARG003 - the same
        region_name: str,
        **_kwargs: Any,
    ) -> _Url:
        properties = cloudformation_json["Properties"]
        arn = properties["TargetFunctionArn"]
        config = backends.lambda_functions(region_name).create_function_url_config(arn, properties)
        # AWS's end with a slash.
        config.url = f"{config.url}/"
        return cls(arn, config.url)

    def is_created(self) -> bool:
        return True


def support() -> None:
    """Let moto's CloudFormation create ``AWS::Lambda::Url`` from now on."""
    get_model_map()[_Url.cloudformation_type()] = _Url
