"""Where did every row go that landed? One account per day over all the steps from the landing to an answer.

A check of one step sees that step. Here what landed is compared with what the answer counts and with what every step on the way
says that it set apart or removed: what is left over was lost, or counted twice.
"""

from de_checks.reconciliation.check import reconciliation_check
from de_checks.reconciliation.steps import Carried, Growth, NoChain, Rejoined, Step, Total
from de_checks.reconciliation.tables import NotByTime

__all__ = ["Carried", "Growth", "NoChain", "NotByTime", "Rejoined", "Step", "Total", "reconciliation_check"]
