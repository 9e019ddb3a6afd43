"""Thirty days of load under Tenon's decisions and under Karpenter's rules: dollars, moved pods, waits (README.md)."""
