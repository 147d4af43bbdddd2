"""What a dataset promises: columns, keys, rules, owner, personal data."""

from de_resources.contract.contract import CONSTRAINT, REDACTED, ROWS, AmbiguousRule, Contract

__all__ = ["CONSTRAINT", "REDACTED", "ROWS", "AmbiguousRule", "Contract"]
