"""Acts on modules as soon as the program has imported them."""

from __future__ import annotations

import sys

from tpumon_attach.harmless import harmless

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
        """Asks the finders behind this one if it is a module to wait for; what those raise is for the program."""
        if name not in self._actions or name in self._asking:
            return None
        self._asking.add(name)
        try:
            spec = self._ask_others(name, path, target)
        finally:
            self._asking.discard(name)
        if spec is not None and spec.loader is not None:
            harmless(f"{name} cannot be watched")(self._note_end)(spec.loader)
        return spec

    def act(self, module: ModuleType) -> None:
        """Calls the module's action."""
        harmless(module.__name__)(self._actions[module.__name__])(module)

    def _ask_others(self, name: str, path: Any, target: Any) -> ModuleSpec | None:
        behind = False
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None) if behind else None
            if find_spec is not None:
                spec = find_spec(name, path, target)
                if spec is not None:
                    return spec  # type: ignore[no-any-return]
            elif behind and _finds_in_the_old_way(finder, name, path):
                return None  # it is asked again, and what it loads has no end to note
            behind = behind or finder is self
        return None

    def _note_end(self, loader: Any) -> None:
        """Has the loader act after it has executed a module to wait for.

        Raises:
            Exception: it has no `exec_module`, or no room for another one. It then loads as it would alone.
        """
        execute, own = loader.exec_module, vars(loader)
        if getattr(execute, "waits", False):
            return
        had_own = "exec_module" in own

        def execute_and_act(module: ModuleType) -> None:
            if module.__name__ not in self._actions:  # some loaders are those of many modules
                execute(module)
                return
            own.pop("exec_module", None)  # as if it had never been there
            if had_own:
                own["exec_module"] = execute
            execute(module)
            self.act(module)

        execute_and_act.waits = True  # type: ignore[attr-defined]
        own["exec_module"] = execute_and_act


def _finds_in_the_old_way(finder: Any, name: str, path: Any) -> bool:
    """True if a finder without `find_spec` has the module. Python 3.12 does not ask such a finder."""
    find_module = getattr(finder, "find_module", None) if sys.version_info < (3, 12) else None
    return find_module is not None and find_module(name, path) is not None
