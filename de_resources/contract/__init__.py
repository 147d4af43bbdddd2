"""What a dataset promises: columns, keys, rules, owner, personal data."""

from de_resources.contract.contract import REDACTED, ROWS, AmbiguousRule, Contract

__all__ = ["REDACTED", "ROWS", "AmbiguousRule", "Contract"]
