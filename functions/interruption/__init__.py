"""Machines that EC2 takes back are given up in time."""
