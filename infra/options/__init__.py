"""The options of a deployment: context keys, and the fields of ``StackOptions``."""
