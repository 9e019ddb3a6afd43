# Tenon's stack of one EKS cluster, from the template that `tenon publish` uploads (docs/deploy-without-cdk.md).

locals {
  # As the CDK names it (infra/cluster/resource_names.py): a stack's name can't have underscores.
  digest     = strcontains(var.cluster, "_") ? "-${substr(sha256(var.cluster), 0, 8)}" : ""
  stack_name = "tenon-${replace(var.cluster, "_", "-")}${local.digest}"
}

resource "aws_cloudformation_stack" "tenon" {
  # `tenon preflight` and `tenon status` know the stack by its name.
  name         = local.stack_name
  template_url = var.template_url
  capabilities = ["CAPABILITY_IAM"]
  iam_role_arn = var.role_arn
  on_failure   = "ROLLBACK"

  # The tag is for cost allocation.
  tags = merge(var.tags, { "eks:eks-cluster-name" = var.cluster })

  timeouts {
    create = "30m"
    update = "30m"
    delete = "30m"
  }
}
