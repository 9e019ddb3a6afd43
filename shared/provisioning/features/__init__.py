"""The optional features of provisioning, one module each; ``doors`` is the list of them."""
