"""Defaults of options from the user's configuration file.

`$XDG_CONFIG_HOME/traceanalyzer/config.toml` (`~/.config/...` without that variable) holds options by their long
name: at the top for every command that has them, in a table named after a command for that command alone (and its
subcommands).

    limit = 40
    [top-kernels]
    by = "short"

What stands on the command line counts before the file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from traceanalyzer.cli.options import WholeNumber
from traceanalyzer.errors import UsageError
from traceanalyzer.text import did_you_mean


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
    wanted = general | content.get(command, {})
    return {command: _default_map(_command(command), wanted)}


def _default_map(command: click.Command | None, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What a command takes of the wanted options; its subcommands find theirs under their names."""
    own = _own_options(command)
    found = {own[name].name or "": _checked(own[name], name, value) for name, value in wanted.items() if name in own}
    return found | {name: _default_map(each, wanted) for name, each in _subcommands(command).items()}


def _content() -> dict[str, Any]:
    try:
        text = path().read_text(encoding="utf-8")
        return _toml(text)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:  # ValueError: neither TOML nor UTF-8
        raise UsageError(f"{path()}: {getattr(error, 'strerror', None) or error}") from error


def _toml(text: str) -> dict[str, Any]:
    # here, not at the top: most users have no such file
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    return tomllib.loads(text)


def _options_by_command() -> dict[str, dict[str, click.Option]]:
    """Command -> long name of each option of it and its subcommands, without dashes -> option."""
    from traceanalyzer.cli import COMMANDS

    return {name: _all_options(_command(name)) for name in COMMANDS}


def _command(name: str) -> click.Command | None:
    from traceanalyzer.cli import cli

    return cli.get_command(click.Context(cli), name)


def _all_options(command: click.Command | None) -> dict[str, click.Option]:
    found = _own_options(command)
    for each in _subcommands(command).values():
        found |= _all_options(each)
    return found


def _own_options(command: click.Command | None) -> dict[str, click.Option]:
    parameters = command.params if command else []
    return {_long_name(each): each for each in parameters if isinstance(each, click.Option)}


def _subcommands(command: click.Command | None) -> dict[str, click.Command]:
    return dict(command.commands) if isinstance(command, click.Group) else {}


def _long_name(option: click.Option) -> str:
    return max(option.opts, key=len).lstrip("-")


def _checked(option: click.Option, name: str, value: Any) -> Any:
    """The value if the option takes it, in the form in which click takes it."""
    several = value if option.multiple and isinstance(value, list) else [value]
    try:
        several = [_as_typed(option, each) for each in several]
        for each in several:
            option.type.convert(each, option, None)
    except click.BadParameter as error:
        raise UsageError(f"{path()}: {name}: {error.message}") from error
    return several if option.multiple else several[0]


def _as_typed(option: click.Option, value: Any) -> Any:
    """A value as it would stand on the command line: `rank = 0` is the text 0, which the option takes apart."""
    if isinstance(option.type, WholeNumber):
        return value
    if option.is_flag:
        if not isinstance(value, bool):
            raise click.BadParameter(f"{value!r} must be true or false")
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise click.BadParameter(f"{value!r} must be a string or a number")
    return str(value)


def _check(condition: bool, complaint: str) -> None:  # noqa: FBT001
    if not condition:
        raise UsageError(f"{path()}: {complaint}")
