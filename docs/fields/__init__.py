"""The ledger of fields: what Kubernetes and Karpenter publish, and what Tenon does with each field.

``schemas`` has the published fields, ``ledger`` the decisions about them (decisions/*.yaml), ``page`` the documentation
that follows. A test compares them: a field that a new version adds fails it until someone decides.
"""
