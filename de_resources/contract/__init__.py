"""What a dataset promises: columns, keys, rules, owner, personal data."""

from de_resources.contract import nested_types as _nested_types  # noqa: F401 - it registers what contracts may use
from de_resources.contract.contract import CONSTRAINT, REDACTED, ROWS, AmbiguousRule, Contract
from de_resources.contract.model import ContractModel

__all__ = ["CONSTRAINT", "REDACTED", "ROWS", "AmbiguousRule", "Contract", "ContractModel"]
