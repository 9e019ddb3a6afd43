"""Which pods may go where: feasibility, pod groups, preferences, domain and host counts."""
