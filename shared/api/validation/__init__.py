"""Validation that a CRD's schema can't express. Each kind's function yields every problem, one sentence each.

A problem names the field as the user wrote it (legacy kinds by their own paths), its value and what is allowed, so that
it can be shown as it is in a condition, an event or the command line. Objects without problems need no further checks.
"""
