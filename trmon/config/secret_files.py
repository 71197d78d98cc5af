"""Reads secret settings from the files that TRMON_*_FILE variables name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic_settings import EnvSettingsSource

from trmon.domain.errors import InvalidInput

SUFFIX = "_FILE"
MAX_BYTES = 1 << 16


class EnvironmentWithSecretFiles(EnvSettingsSource):
    """The environment, in which a file may hold the value of a secret."""

    def __call__(self) -> dict[str, Any]:
        """Return the values of the fields. Errors: InvalidInput naming the variable."""
        secrets = (name for name, field in self.settings_cls.model_fields.items() if is_secret(field.annotation))
        self.env_vars = with_secret_files(self.env_vars, [f"{self.env_prefix}{name}".lower() for name in secrets])
        return super().__call__()


def is_secret(annotation: object) -> bool:
    """Return whether a setting's type hides its value."""
    return "SecretStr" in str(annotation)


def with_secret_files(variables: Mapping[str, str | None], secrets: Iterable[str]) -> dict[str, str | None]:
    """Return the variables with each secret that a file holds.

    Args: variables, secrets: the names are lower case, as pydantic-settings gives them.
    Errors: InvalidInput naming the variable, if it and that of its file are both set or the file holds no text.
    """
    found = dict(variables)
    for name in secrets:
        variable = name.upper() + SUFFIX
        path = variables.get(variable.lower())
        if path is None:
            continue
        if variables.get(name) is not None:
            raise InvalidInput(variable, f"is set, and so is {name.upper()}; unset one of them")
        found[name] = _read(variable, Path(path))
    return found


def _read(variable: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode().rstrip("\r\n")
    except OSError as error:
        raise InvalidInput(variable, f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise InvalidInput(variable, f"{path} is not UTF-8 text") from None
    if not text:
        raise InvalidInput(variable, f"{path} is empty")
    if len(content) > MAX_BYTES:
        raise InvalidInput(variable, f"{path} is larger than {MAX_BYTES} bytes")
    return text
