"""``tenon verify``: one run that proves a deployment on an account, and removes everything that it made."""
