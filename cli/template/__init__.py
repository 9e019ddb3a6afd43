"""``tenon template`` and ``tenon publish``: deployments by CloudFormation or Terraform instead of the CDK."""
