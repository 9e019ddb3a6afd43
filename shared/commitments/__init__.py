"""Savings Plans and Reserved Instances: what the account has paid for already, and what of it is unused."""
