"""The CDK app: one stack per cluster."""

import os

# The CDK's runtime prints a banner on every Node.js release that nears its end of life; what `make` checks is enough.
# It reads this once, when aws_cdk is imported, so the variable is set before any module of ours imports it.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
