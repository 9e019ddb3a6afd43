variable "cluster" {
  description = "The EKS cluster's name."
  type        = string

  validation {
    condition     = can(regex("^[0-9A-Za-z][0-9A-Za-z_-]{0,99}$", var.cluster))
    error_message = "It must be the name of an EKS cluster: letters, digits, - and _, 100 at most."
  }
}

variable "template_url" {
  description = "The URL that `tenon publish NAME --bucket BUCKET` prints. Another version or other settings have another URL."
  type        = string

  validation {
    condition     = startswith(var.template_url, "https://") && endswith(var.template_url, ".json")
    error_message = "It must be the https:// URL of a template, as `tenon publish` prints it."
  }
}

variable "tags" {
  description = "Tags of the stack and of what it creates, in addition to the cluster's."
  type        = map(string)
  default     = {}
}

variable "role_arn" {
  description = "The role by which CloudFormation creates the stack; without one, it is that of the provider."
  type        = string
  default     = null
}
