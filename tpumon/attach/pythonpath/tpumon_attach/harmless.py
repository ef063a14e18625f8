"""The edge to the program: nothing of ours that fails there reaches it."""

from __future__ import annotations

from tpumon_attach.messages import error_words, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    _Function = TypeVar("_Function", bound=Callable[..., Any])

_MOST_TOLD = 20
_told: set[str] = set()


def harmless(lost: str, instead: Any = None) -> Callable[[_Function], _Function]:
    """Decorates what the program, a framework, Python or a thread calls: what it raises becomes a line, each once.

    A framework's own function is never called within: what that raises is for the program, as is what a handler of its
    signals raises.

    Args:
        lost: what the program does without if this fails, for the line.
        instead: what is returned then.
    """

    def wrap(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # whatever it is, the program runs on
                if _is_of_a_handler(error):
                    raise
                _tell(lost, error)
                return instead

        call.__doc__, call.__wrapped__ = function.__doc__, function  # type: ignore[attr-defined]
        return call

    return wrap


def _is_of_a_handler(error: Exception) -> bool:
    """True if the program's handler of a signal raised it: it may be called anywhere."""
    try:
        import signal

        codes = {_code(handler) for handler in map(signal.getsignal, signal.valid_signals()) if callable(handler)}
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code not in codes:
            trace = trace.tb_next
    except Exception:  # out of memory, or of stack
        return False
    return trace is not None


def _code(handler: Any) -> Any:
    """The code that a handler runs: a function's or a method's, that of an object that is called, or of a partial."""
    handler = getattr(handler, "func", handler)
    called = handler if hasattr(handler, "__code__") else type(handler).__call__
    return getattr(called, "__code__", None)


def _tell(lost: str, error: Exception) -> None:
    try:
        line = f"this program is not fully attached: {lost}: {error_words(error)}"
        if line not in _told and len(_told) < _MOST_TOLD:
            _told.add(line)
            say(line)
    except Exception:  # noqa: S110 - out of memory, or of stack
        pass
