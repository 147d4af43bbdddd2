"""Errors of the platform. Each holds its facts as attributes and says in one sentence what happened and what to do."""

from __future__ import annotations

from typing import ClassVar


class PlatformError(Exception):
    """Base of all errors that the platform raises on purpose."""


class TransientError(PlatformError):
    """May succeed when tried again: a timeout, a conflict, a service that restarts."""

    soon: ClassVar[bool] = True
    """Whether seconds may be enough. Not where it was waited for already, or where somebody has to finish something first."""


class PermanentError(PlatformError):
    """Fails the same way until somebody changes data, code or configuration."""
