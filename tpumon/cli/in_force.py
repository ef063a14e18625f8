"""The options in force, and where each comes from, for `tpumon config`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import typer

from tpumon.cli.commands.config import Setting
from tpumon.cli.config_file import OptionValues, config_path, options_of, read_config, variable_of

if TYPE_CHECKING:
    from typer.core import TyperGroup


def settings_in_force(context: typer.Context) -> list[Setting]:
    """Every option of `tpumon`; of its commands, those that are set and have another value or origin there.

    Args:
        context: of a command of `tpumon`.

    Raises:
        UsageError: the configuration file is wrong.
    """
    assert context.parent is not None
    group = cast("TyperGroup", context.parent.command)
    config = read_config(group)
    settings = [_setting(context, "", name, one, config.get("", {})) for name, one in options_of(group)]
    of_group = {one.name: one for one in settings}
    for command, its in group.commands.items():
        for name, one in options_of(its):
            setting = _setting(context, command, name, one, config.get(command, {}))
            same = of_group.get(name)
            differs = same is None or (setting.value, setting.origin) != (same.value, same.origin)
            settings += [setting] if setting.is_set and differs else []
    return settings


def _setting(context: typer.Context, command: str, name: str, parameter: Any, config: OptionValues) -> Setting:
    from_variable = parameter.value_from_envvar(context)
    if from_variable is not None:
        return Setting(command=command, name=name, value=from_variable, origin=variable_of(name), is_set=True)
    from_file = config.get(parameter.name)
    if from_file is not None:
        return Setting(command=command, name=name, value=from_file, origin=str(config_path()), is_set=True)
    default = parameter.default
    text = None if default is None else str(default).lower() if isinstance(default, bool) else str(default)
    return Setting(command=command, name=name, value=text, origin="default", is_set=False)
