"""``tenon pause`` and ``tenon resume``: nothing is changed but what interruptions force."""
