"""Secrets by reference: configuration names `secret://postgres_password`, a chain of backends knows the value.

The first backend that has the name wins: the variable `DE_SECRET_<NAME>`, then the file of that name in
`Settings.secrets`. Another store (a cloud's secret manager, mounted files) is one more object with a `read` method.
"""

from __future__ import annotations

import os
import re
import secrets as random_source
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from de_resources.errors import PermanentError
from de_resources.settings import Settings

SCHEME = "secret://"
_NAME = re.compile(r"[a-z][a-z0-9_]*")


class UnknownSecret(PermanentError):
    """No backend has the secret. Names the reference, never a value."""

    def __init__(self, reference: str) -> None:
        self.reference = reference
        name = reference.removeprefix(SCHEME)
        super().__init__(
            f"`{reference}` is in no secret backend: set the variable DE_SECRET_{name.upper()}, or, for a local "
            "service, run `de up`, which generates it."
        )


class NotASecretReference(PermanentError):
    """A text that is no `secret://name`. The text is not shown: it may be the secret itself."""

    def __init__(self) -> None:
        super().__init__("Give a secret as `secret://name` with a name of a-z, 0-9 and `_`, never as its value.")


class SecretBackend(Protocol):
    """One place that keeps secrets."""

    def read(self, name: str) -> str | None:
        """The value, or None when this backend does not know the name."""


@dataclass(frozen=True)
class EnvironmentSecrets:
    """Secrets in variables `DE_SECRET_<NAME>`."""

    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def read(self, name: str) -> str | None:
        """The variable's value; an empty one counts as absent."""
        return self.environment.get(f"DE_SECRET_{name.upper()}") or None


@dataclass(frozen=True)
class FileSecrets:
    """Secrets in files of one folder, each readable by its owner only."""

    folder: Path

    def read(self, name: str) -> str | None:
        """The file's content, without the line end that an editor may have added."""
        try:
            return (self.folder / name).read_text().rstrip("\n")
        except FileNotFoundError:
            return None

    def create(self, name: str, value: str) -> None:
        """Write a secret that is not there yet; of several writers the first wins, and no reader sees half a value."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=self.folder) as file:  # created with mode 0600
            file.write(value)
            file.flush()
            try:
                os.link(file.name, self.folder / name)
            except FileExistsError:
                return


@dataclass(frozen=True)
class Secrets:
    """The chain of backends, and the folder in which new secrets are made."""

    backends: Sequence[SecretBackend]
    generated: FileSecrets

    @classmethod
    def from_settings(cls, settings: Settings) -> Secrets:
        """Environment first, then the platform's own files."""
        files = FileSecrets(settings.secrets)
        return cls(backends=(EnvironmentSecrets(), files), generated=files)

    def resolve(self, reference: str) -> str:
        """The value behind `secret://name`.

        Raises:
            UnknownSecret: no backend has it.
            NotASecretReference: the text is not of that form.
        """
        name = _name_of(reference)
        for backend in self.backends:
            value = backend.read(name)
            if value is not None:
                return value
        raise UnknownSecret(reference)

    def resolve_hidden(self, reference: str) -> SecretStr:
        """As `resolve`, wrapped so that neither repr nor a log line shows the value."""
        return SecretStr(self.resolve(reference))

    def generate(self, name: str, nbytes: int = 32) -> str:
        """The secret of that name, made of `nbytes` random bytes (URL-safe text) when no backend has it yet.

        A rerun returns the same value; of several processes at once all get the same one.
        """
        reference = SCHEME + name
        try:
            return self.resolve(reference)
        except UnknownSecret:
            self.generated.create(name, random_source.token_urlsafe(nbytes))
            return self.resolve(reference)


def _name_of(reference: str) -> str:
    name = reference.removeprefix(SCHEME)
    if not reference.startswith(SCHEME) or not _NAME.fullmatch(name):
        raise NotASecretReference
    return name
