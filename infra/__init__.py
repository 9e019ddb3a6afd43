"""The CDK app: one stack per cluster."""
