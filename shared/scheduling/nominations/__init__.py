"""Nominations: how pods get the nodes that were planned and launched for them. To be read in this order.

1. ``planned_pods``: a NodeClaim names the pods that it was planned for, and for how long that holds.
2. ``nominated_pods``: in a decision, these pods and their room on the coming nodes are left out.
3. ``nomination_order``: when nodes join, which pods can be nominated for them now, in kube-scheduler's own order. The
   lifecycle function (``functions/lifecycle/claims/nomination.py``) writes them to the pods' status.
4. ``displacements``: pods that their node refused or evicted, and the brake on launching the same node again.
"""
