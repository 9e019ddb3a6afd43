"""``tenon preflight``: can Tenon be deployed for this cluster, and will it work?"""
