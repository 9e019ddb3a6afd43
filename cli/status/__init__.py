"""``tenon status``: is Tenon itself well?"""
