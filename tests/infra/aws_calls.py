"""The calls to AWS in the code of a function."""

import ast

import botocore.session
from botocore import xform_name

from infra import assembly
from infra.bundle import function_imports

SERVICES = (
    "arc-zonal-shift",
    "autoscaling",
    "cloudwatch",
    "dynamodb",
    "ec2",
    "eks",
    "events",
    "iam",
    "pricing",
    "s3",
    "savingsplans",
    "sqs",
    "ssm",
)

_AUTHORIZED_BY = {"sqs:SendMessageBatch": "sqs:SendMessage"}
"""Operations without an action of their own (Service Authorization Reference, Amazon SQS)."""


def reachable(function: str) -> set[str]:
    """The AWS calls in all modules that a function can import, as IAM actions."""
    session = botocore.session.get_session()
    by_name: dict[str, set[str]] = {}
    for service in SERVICES:
        for operation in session.get_service_model(service).operation_names:
            call = f"{service}:{operation}"
            by_name.setdefault(xform_name(operation), set()).add(_AUTHORIZED_BY.get(call, call))
    calls = set()
    for path in function_imports.first_party_modules(assembly.CHECKOUT, function).values():
        tree = ast.parse(path.read_text())
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if isinstance(node.func.value, ast.Name) and node.func.value.id in imported:
                continue  # a function of a module, such as listing.list_objects: clients are never imported
            name = node.func.attr
            if name == "get_paginator" and isinstance(node.args[0], ast.Constant):
                name = str(node.args[0].value)
            calls |= by_name.get(name, set())
    return calls
