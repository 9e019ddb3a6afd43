output "outputs" {
  description = "The stack's outputs, such as NodeRoleArn, the role of nodes."
  value       = aws_cloudformation_stack.tenon.outputs
}

output "stack_id" {
  description = "The stack's ARN."
  value       = aws_cloudformation_stack.tenon.id
}
