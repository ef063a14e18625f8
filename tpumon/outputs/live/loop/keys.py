"""Turn bytes from a terminal's keyboard into names of keys. Pure, no clock."""

from __future__ import annotations

import re

_SEQUENCE = re.compile(
    rb"\x1b(?:"
    rb"\[M...|"  # a mouse in its oldest protocol, left on by another program
    rb"\[\[.|"  # function keys of the Linux console
    rb"\[(?![M\[])(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~])|"
    rb"O(?P<application>[!-~])|"
    rb"(?P<string>[\]PX^_])"  # begins a terminal's answer to another program
    rb")",
    re.DOTALL,
)
_UNFINISHED = re.compile(rb"\x1b(?:\[M.{0,2}|\[\[|\[[0-?]{0,64}[ -/]{0,8}|O)?\Z", re.DOTALL)
_BROKEN = re.compile(rb"\x1b(?:\[[ -?]*|.)", re.DOTALL)  # Alt and a key, or nonsense
_STRING_END = re.compile(rb"\x07|\x1b\\")
_PASTE_END = re.compile(rb"\x1b\[201~")
_LONGEST_END = 6

_ARROWS = {b"A": "up", b"B": "down", b"C": "right", b"D": "left", b"H": "home", b"F": "end"}
_KEYPAD = _ARROWS | {b"M": "enter"}
_NUMBERED = {b"1": "home", b"4": "end", b"5": "pageup", b"6": "pagedown", b"7": "home", b"8": "end"}
_CONTROL = {
    0x08: "backspace",
    0x09: "tab",
    0x0A: "enter",
    0x0C: "ctrl-l",
    0x0D: "enter",
    0x15: "ctrl-u",
    0x1A: "ctrl-z",
    0x7F: "backspace",
}
_ESC = 0x1B

PASTED = "pasted:"
"""Prefix of a key that is pasted text."""

CLICKED = "clicked:"
"""Prefix of a key that is a click: column and line follow, counted from 0, as in `clicked:12:3`."""

_MOUSE = re.compile(rb"<(\d{1,4});(\d{1,4});(\d{1,4})")
_BUTTONS = {0: CLICKED, 64: "wheelup", 65: "wheeldown"}

_LONGEST_PASTE = 1000
_UNFINISHED_S = 0.05
_PASTE_S = 1.0


class KeyParser:
    """Parses bytes into keys, however the bytes are split.

    A key is a printable character as itself, or one of up, down, left, right, pageup, pagedown, home, end, enter, esc,
    backspace, tab, ctrl-l, ctrl-u, ctrl-z, wheelup, wheeldown. Pasted text is one key, PASTED and the text, so that it
    does not act as a command; a click of the left button is CLICKED and its place. Unknown sequences are dropped.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._swallow_until: re.Pattern[bytes] | None = None
        self._pasted = b""

    @property
    def waits_s(self) -> float | None:
        """Seconds to wait for the rest of a sequence before calling `flush`; None: nothing is unfinished."""
        if self._swallow_until is _PASTE_END:
            return _PASTE_S
        return _UNFINISHED_S if self._rest or self._swallow_until is not None else None

    def feed(self, data: bytes) -> list[str]:
        """Returns the keys that these bytes complete."""
        data, self._rest = self._rest + data, b""
        keys: list[str] = []
        at = 0
        while at < len(data):
            if self._swallow_until is not None:
                at = self._swallow(data, at, keys)
            elif data[at] == _ESC:
                at = self._sequence(data, at, keys)
            elif data[at] < 0x20 or data[at] == 0x7F:
                keys += filter(None, [_CONTROL.get(data[at])])
                at += 1
            else:
                at = self._character(data, at, keys)
        return keys

    def flush(self) -> list[str]:
        """Ends what is unfinished: a lone ESC is the Esc key, anything else is dropped."""
        keys = ["esc"] if self._rest == b"\x1b" and self._swallow_until is None else []
        self._rest, self._swallow_until, self._pasted = b"", None, b""
        return keys

    def _sequence(self, data: bytes, at: int, keys: list[str]) -> int:
        sequence = _SEQUENCE.match(data, at)
        if sequence is None:
            if _UNFINISHED.match(data, at):
                self._rest = data[at:]
                return len(data)
            if data[at + 1] == _ESC:
                keys.append("esc")
                return at + 1
            broken = _BROKEN.match(data, at)
            return broken.end() if broken else at + 1
        number = (sequence["parameters"] or b"").partition(b";")[0]
        if sequence["string"]:
            self._swallow_until = _STRING_END
        elif sequence["final"] == b"~" and number == b"200":
            self._swallow_until = _PASTE_END
        elif sequence["final"] == b"M" and (mouse := _MOUSE.fullmatch(sequence["parameters"])):
            keys += _mouse(*map(int, mouse.groups()))
        elif sequence["final"] == b"~":
            keys += filter(None, [_NUMBERED.get(number)])
        else:
            keys += filter(None, [_ARROWS.get(sequence["final"]) or _KEYPAD.get(sequence["application"])])
        return sequence.end()

    def _swallow(self, data: bytes, at: int, keys: list[str]) -> int:
        assert self._swallow_until is not None
        end = self._swallow_until.search(data, at)
        if end is None:
            self._rest = data[at:][1 - _LONGEST_END :]  # the end may have begun
            self._paste(data[at : len(data) - len(self._rest)])
            return len(data)
        self._paste(data[at : end.start()])
        if self._pasted:
            keys.append(PASTED + self._pasted.decode(errors="ignore"))
        self._swallow_until, self._pasted = None, b""
        return end.end()

    def _paste(self, data: bytes) -> None:
        if self._swallow_until is _PASTE_END:
            self._pasted = (self._pasted + data)[:_LONGEST_PASTE]

    def _character(self, data: bytes, at: int, keys: list[str]) -> int:
        """Decodes one UTF-8 character; invalid bytes are dropped one by one."""
        first = data[at]
        length = 1 + (first >= 0xC0) + (first >= 0xE0) + (first >= 0xF0)
        encoded = data[at : at + length]
        try:
            character = encoded.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                self._rest = encoded
                return len(data)
            return at + 1
        if character.isprintable():
            keys.append(character)
        return at + length


def _mouse(button: int, column: int, line: int) -> list[str]:
    """A press of the left button or a turn of the wheel, without further keys; other buttons mean nothing."""
    name = _BUTTONS.get(button)
    if name is None or not column or not line:
        return []
    return [f"{CLICKED}{column - 1}:{line - 1}"] if name == CLICKED else [name]
