"""The CDK's command line, by npm."""

CDK = ["npx", "--yes", "aws-cdk@2.1148.1"]
"""Pinned: what npm calls the latest release is older than the CDK's library here."""
