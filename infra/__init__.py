"""The CDK app: one stack per cluster."""

import os

# The CDK's runtime prints a banner for Node.js releases that are near their end of life; `make` checks the version.
# The variable is read once, when aws_cdk is imported, so it is set before any module here imports it.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
