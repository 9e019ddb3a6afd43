"""``tenon report``: what a cluster did over time and what it cost, as one page that needs nothing else."""
