"""The deployment's functions, by their configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from infra import function_sizes
from infra.cluster import resource_names
from shared.base.aws import error_code
from shared.base.settings import variable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cli.verify.verification import Verification

_NOT_THERE = "ResourceNotFoundException"


def deployed(run: Verification) -> dict[str, Mapping[str, Any]]:
    """The configurations of the cluster's functions, by function; those that aren't deployed are left out.

    The catalog function of a fleet isn't the cluster's own.

    Raises:
        ClientError: they can't be read.
    """
    configurations: dict[str, Mapping[str, Any]] = {}
    for function in function_sizes.ALL:
        name = resource_names.function(run.cluster, function)
        try:
            configurations[function] = run.aws("lambda").get_function_configuration(FunctionName=name)
        except ClientError as error:
            if error_code(error) != _NOT_THERE:
                raise
    return configurations


def log_group(configuration: Mapping[str, Any]) -> str:
    """The log group of a function."""
    group: str = configuration.get("LoggingConfig", {}).get("LogGroup", "")
    return group or f"/aws/lambda/{configuration['FunctionName']}"


def fleet(configurations: Mapping[str, Mapping[str, Any]]) -> str:
    """The fleet that the cluster is of, "" for none."""
    environ = configurations.get(function_sizes.LIFECYCLE, {}).get("Environment", {}).get("Variables", {})
    name: str = environ.get(variable("fleet"), "")
    return name
