"""A template for deployments without the CDK: two parameters name the bucket with the functions' code.

The CDK uploads code to a bucket that its bootstrapping creates, and its templates refer to that. Here the user chooses
the bucket, so one template serves every account and Region. The names of the objects are hashes of their contents.
"""

from __future__ import annotations

from aws_cdk import CfnParameter, DefaultStackSynthesizer, Stack

BUCKET, PREFIX = "AssetsBucket", "AssetsPrefix"
"""The parameters."""


def synthesizer() -> DefaultStackSynthesizer:
    """The synthesizer of a stack that needs no bootstrapping, and refers to the parameters."""
    return DefaultStackSynthesizer(
        file_assets_bucket_name=f"${{{BUCKET}}}", bucket_prefix=f"${{{PREFIX}}}", generate_bootstrap_version_rule=False
    )


def add_parameters(stack: Stack) -> None:
    """Give the stack the parameters."""
    CfnParameter(stack, BUCKET, type="String", description="The bucket with the functions' code, in the stack's Region")
    CfnParameter(
        stack, PREFIX, type="String", default="", description='The beginning of the objects\' names, such as "tenon/"'
    )
