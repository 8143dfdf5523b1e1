"""Defaults of options from the user's configuration file.

`$XDG_CONFIG_HOME/traceanalyzer/config.toml` (`~/.config/...` without that variable) holds options by their long
name: at the top for every command that has them, in a table named after a command for that command alone.

    limit = 40
    [top-kernels]
    by = "short"

What stands on the command line counts before the file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from traceanalyzer.errors import UsageError
from traceanalyzer.text import did_you_mean

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def path() -> Path:
    """Where the configuration file is looked for."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "traceanalyzer" / "config.toml"


def defaults(command: str | None) -> dict[str, dict[str, Any]]:
    """click's `default_map` for the command about to run. Raises `UsageError` for a mistake in the file."""
    content = _content()
    if not content or command is None:
        return {}
    options = _options_by_command()
    general = {name: value for name, value in content.items() if not isinstance(value, dict)}
    for name in general:
        known = {option for found in options.values() for option in found}
        _check(name in known, f"no command has an option {name!r}{did_you_mean(name, known)}")
    for name, table in content.items():
        if isinstance(table, dict):
            _check(name in options, f"[{name}] is no command{did_you_mean(name, options)}")
            for option in table:
                _check(option in options[name], f"{name} has no option {option!r}{did_you_mean(option, options[name])}")
    own = options[command]
    wanted = {name: value for name, value in general.items() if name in own} | content.get(command, {})
    return {command: {own[name].name or "": _checked(own[name], name, value) for name, value in wanted.items()}}


def _content() -> dict[str, Any]:
    try:
        return tomllib.loads(path().read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:  # ValueError: neither TOML nor UTF-8
        raise UsageError(f"{path()}: {getattr(error, 'strerror', None) or error}") from error


def _options_by_command() -> dict[str, dict[str, click.Option]]:
    """Command -> long name of each option, without dashes -> option."""
    from traceanalyzer.cli import COMMANDS, cli

    context = click.Context(cli)
    found = {}
    for name in COMMANDS:
        command = cli.get_command(context, name)
        parameters = command.params if command else []
        found[name] = {_long_name(each): each for each in parameters if isinstance(each, click.Option)}
    return found


def _long_name(option: click.Option) -> str:
    return max(option.opts, key=len).lstrip("-")


def _checked(option: click.Option, name: str, value: Any) -> Any:
    """The value if the option takes it, in the form in which click takes it."""
    if option.multiple and not isinstance(value, list):
        value = [value]
    try:
        for each in value if option.multiple else [value]:
            option.type.convert(each, option, None)
    except click.BadParameter as error:
        raise UsageError(f"{path()}: {name}: {error.message}") from error
    return value


def _check(condition: bool, complaint: str) -> None:  # noqa: FBT001
    if not condition:
        raise UsageError(f"{path()}: {complaint}")
