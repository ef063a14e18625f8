"""Acts on modules as soon as the program has imported them."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


def after_import(actions: Mapping[str, Callable[[ModuleType], None]]) -> None:
    """Calls each action once its module is imported: now, or right after the module was executed.

    What an action raises becomes a line on stderr. Nothing about the modules shows that they were waited for.
    """
    watch = _Watch(actions)
    sys.meta_path.insert(0, watch)
    for name in actions:
        module = sys.modules.get(name)
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            watch.act(module)


class _Watch:
    """A finder that finds what the others find."""

    def __init__(self, actions: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._actions = actions
        self._asking: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Asks the finders behind this one if it is a module to wait for."""
        if name not in self._actions or name in self._asking:
            return None
        self._asking.add(name)
        try:
            spec = self._ask_others(name, path, target)
        finally:
            self._asking.discard(name)
        if spec is not None and spec.loader is not None:
            self._note_end(spec.loader)
        return spec

    def act(self, module: ModuleType) -> None:
        """Calls the module's action."""
        try:
            self._actions[module.__name__](module)
        except Exception as error:  # whatever it is, the program runs on
            from tpumon_attach.messages import explain, say

            say(f"this program is not fully attached: {module.__name__}: {explain(error)}")

    def _ask_others(self, name: str, path: Any, target: Any) -> ModuleSpec | None:
        finders = list(sys.meta_path)
        for finder in finders[finders.index(self) + 1 :] if self in finders else ():
            find_spec = getattr(finder, "find_spec", None)
            spec = None if find_spec is None else find_spec(name, path, target)
            if spec is not None:
                return spec  # type: ignore[no-any-return]
        return None

    def _note_end(self, loader: Any) -> None:
        """Has the loader, which is this module's alone, act after it has executed the module."""
        execute = loader.exec_module

        def execute_and_act(module: ModuleType) -> None:
            del loader.exec_module  # as if it had never been there
            execute(module)
            self.act(module)

        loader.exec_module = execute_and_act
