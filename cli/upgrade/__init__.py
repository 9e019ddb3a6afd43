"""``tenon upgrade-check``: what an upgrade of Tenon itself would change."""
