"""Bytes from a keyboard as keys, however they are split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpumon.outputs.live.loop.keys import KeyParser

KEYS = {
    b"q": ["q"],
    b"jk G": ["j", "k", " ", "G"],
    b"\x1b[A\x1b[B\x1b[C\x1b[D": ["up", "down", "right", "left"],
    b"\x1bOA\x1bOB\x1bOC\x1bOD": ["up", "down", "right", "left"],
    b"\x1b[1;5A\x1b[1;2B": ["up", "down"],
    b"\x1b[5~\x1b[6~": ["pageup", "pagedown"],
    b"\x1b[5;2~": ["pageup"],
    b"\x1b[H\x1b[F\x1bOH\x1bOF\x1b[1~\x1b[4~\x1b[7~\x1b[8~": ["home", "end"] * 4,
    b"\r\n\x1bOM": ["enter"] * 3,
    b"\x7f\x08\t\x0c\x15\x1a": ["backspace", "backspace", "tab", "ctrl-l", "ctrl-u", "ctrl-z"],
    "é√🙂".encode(): ["é", "√", "🙂"],
    b"\x1b\x1b[A": ["esc", "up"],
    b"\x1b[<0;10;20M\x1b[<0;10;20m": ["clicked:9:19"],
    b"\x1b[<64;1;1M\x1b[<65;300;100M": ["wheelup", "wheeldown"],
    b"\x1b[200~q\nrm -rf\n\x1b[A\x1b[201~": ["pasted:q\nrm -rf\n\x1b[A"],
}
NOTHING = {
    "delete and function keys": b"\x1b[3~\x1bOP\x1b[15~\x1b[24~\x1b[[A",
    "shift-tab": b"\x1b[Z",
    "focus": b"\x1b[I\x1b[O",
    "Alt and a key": b"\x1bq",
    "a mouse": b"\x1b[<2;10;20M\x1b[<32;10;20M\x1b[<16;1;1M\x1b[<0;0;0M\x1b[<0;1M\x1b[M q!",
    "cursor position": b"\x1b[24;80R",
    "device attributes": b"\x1b[?64;1;2c",
    "a colour that somebody asked for": b"\x1b]11;rgb:0000/0000/qqqq\x07\x1b]11;rgb:0000/0000/qqqq\x1b\\",
    "a long answer": b"\x1b]52;c;" + b"q" * 5000 + b"\x07",
    "a device control string": b"\x1bP1$r0q\x1b\\",
    "a key of kitty's protocol": b"\x1b[113;5u",
    "control characters": b"\x00\x01\x03\x13\x1f",
    "invalid UTF-8": b"\xff\xc0\x80\xf8\x88",
    "C1 control characters": "\x9b\x85".encode(),
    "invisible characters": "\u200b\u202e".encode(),
    "a broken sequence": b"\x1b[12;3\x00",
}


@pytest.mark.parametrize(("typed", "keys"), KEYS.items())
def test_keys(typed, keys):
    """Keys in the spellings of the common terminals."""
    parser = KeyParser()
    assert parser.feed(typed) == keys
    assert parser.waits_s is None


@pytest.mark.parametrize("what", NOTHING)
def test_what_is_not_known_is_swallowed(what):
    """No part of it is a key; the key after it is one again."""
    parser = KeyParser()
    assert parser.feed(NOTHING[what] + b"k") == ["k"]
    assert parser.waits_s is None


@given(st.lists(st.sampled_from([*KEYS, *NOTHING.values()])), st.data())
def test_however_it_is_split(parts, data):
    """The same keys come of any split of the same bytes."""
    typed = b"".join(parts)
    whole, split, keys = KeyParser(), KeyParser(), []
    expected = whole.feed(typed)
    while typed:
        length = data.draw(st.integers(1, 12))
        keys += split.feed(typed[:length])
        typed = typed[length:]
    assert keys == expected
    assert split.waits_s == whole.waits_s


@given(st.lists(st.binary()))
def test_no_bytes_break_it(reads):
    """Whatever comes, it gives keys of its list or printable characters, and after a pause a key is a key again."""
    parser = KeyParser()
    names = {key for keys in KEYS.values() for key in keys}
    for data in reads:
        assert all(
            key in names or key.startswith(("pasted:", "clicked:")) or (len(key) == 1 and key.isprintable())
            for key in parser.feed(data)
        )
        assert len(parser._rest) < 100
    parser.flush()
    assert parser.feed(b"q") == ["q"]


def test_a_lone_esc_is_one_only_when_nothing_follows():
    """It may be the beginning of an arrow."""
    parser = KeyParser()
    assert parser.feed(b"\x1b") == []
    assert parser.waits_s == 0.05
    assert parser.feed(b"[A") == ["up"]
    assert parser.feed(b"\x1b") == []
    assert parser.flush() == ["esc"]
    assert parser.waits_s is None
    assert parser.flush() == []


@pytest.mark.parametrize("typed", [b"\x1b[", b"\x1bO", b"\x1b[1;", b"\x1b[M a", b"\xf0\x9f", b"\x1b]52;c;"])
def test_what_stays_unfinished_is_dropped(typed):
    """Alt-[ and Alt-O, or a broken connection: the keys after a pause count again."""
    parser = KeyParser()
    assert parser.feed(typed) == []
    assert parser.waits_s == 0.05
    assert parser.flush() == []
    assert parser.feed(b"q") == ["q"]


def test_pasted_text_is_one_key_that_is_no_command():
    """However it is split; of a long one the beginning."""
    for split in range(20):
        parser = KeyParser()
        typed = "\x1b[200~q\nä\x1b[201~k".encode()
        assert parser.feed(typed[:split]) + parser.feed(typed[split:]) == ["pasted:q\nä", "k"]
    (key,) = KeyParser().feed(b"\x1b[200~" + b"x" * 100_000 + b"\x1b[201~")
    assert key == "pasted:" + "x" * 1000


def test_a_paste_that_does_not_end_is_over_after_a_second_of_silence():
    """Its end may be lost; the keyboard must not be."""
    parser = KeyParser()
    assert parser.feed(b"\x1b[200~qqq") == []
    assert parser.waits_s == 1.0
    assert parser.flush() == []
    assert parser.feed(b"q") == ["q"]
