"""File of defaults: options of commands that a user need not write each time, `~/.config/reput/config.toml`.

A table has the name of a command (`[stats]`, `[admin.lag]`), a key the long name of one of its options. What is given
on the command line wins.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from reput.cli.command import options_by_name
from reput.errors import ConfigError
from reput.files import DISK

#: Environment variable with the path of the file, and its former name, kept for one release.
VARIABLES = ("REPUT_DEFAULTS", "REPUT_CONFIG")


def defaults_path() -> str | None:
    """Path of the file; None if there is none. Raises ConfigError if the environment names a missing one."""
    for variable in VARIABLES:
        if named := os.environ.get(variable):
            if not DISK.exists(named):
                raise ConfigError(f"{named}: no such file; {variable} names it")
            return named
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    path = os.path.join(folder, "reput", "config.toml")
    return path if DISK.exists(path) else None


def read_defaults(name: str, command: Any, names: Iterable[str]) -> dict[str, Any]:
    """Defaults of one command, in the form that click's `default_map` has.

    Args:
        name: of the command that runs.
        command: the command or group of that name; only its table is looked at.
        names: of all commands.

    Raises ConfigError for a name that no command or option has, with the nearest one, and for a value of another type.
    """
    path = defaults_path()
    if path is None:
        return {}
    import tomllib

    try:
        content = tomllib.loads(DISK.read_bytes(path).decode())
    except ValueError as error:  # also of a file that is no UTF-8
        raise ConfigError(f"{path}: no TOML: {error}") from None
    for key, value in content.items():
        if not isinstance(value, dict):
            raise ConfigError(f"{path}: {key}: an option stands in the table of its command: [stats]")
        if key not in names:
            raise ConfigError(f"{path}: there is no command {key!r}{_nearest(key, names)}")
    return {name: _of_command(path, name, command, content.get(name, {}))}


def _of_command(path: str, name: str, command: Any, table: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults of a command, or of the commands of a group, by the names of parameters."""
    found: dict[str, Any] = {}
    commands = getattr(command, "commands", {})
    options = {option.removeprefix("--"): param for option, param in options_by_name(command).items()}
    known = [*commands, *(name for name, param in options.items() if f"--{name}" in param.opts)]
    for key, value in table.items():
        place = f"{path}: [{name}] {key}"
        if key in commands and isinstance(value, dict):
            found[key] = _of_command(path, f"{name}.{key}", commands[key], value)
        elif key in options:
            found[options[key].name] = _text(place, options[key], value)
        else:
            raise ConfigError(f"{place}: there is no such {'command' if commands else 'option'}{_nearest(key, known)}")
    return found


def _text(place: str, option: Any, value: Any) -> Any:
    """Value as the command line would have it: texts, and true or false for a flag."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise ConfigError(f"{place}: expected true or false, found {value!r}")
        return value
    if option.multiple and isinstance(value, list):
        return [str(one) for one in value]
    if isinstance(value, (bool, dict, list)):
        raise ConfigError(f"{place}: expected one text or number, found {value!r}")
    return [str(value)] if option.multiple else str(value)


def _nearest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
