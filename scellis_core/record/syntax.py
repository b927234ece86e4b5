"""What the YAML reader's own errors say, in the words and grammar of the record's errors."""

from __future__ import annotations

from typing import Any

from scellis_core.errors import RecordError

_OTHERWISE = "a key that is indented otherwise"
_BESIDE = "indenting it as the keys beside it"
_TOKENS = {
    "scalar": "more text",
    "stream end": "the end of the file",
    "block mapping start": _OTHERWISE,
    "'?'": "a key beside a list",
    "'-'": "a list item beside keys",
}
"""What the reader calls the token that it did not expect -> what a person sees there."""


def syntax_error(error: Any, text: str, name: str) -> RecordError:
    """Return the record's error for one of the YAML reader.

    Args:
        error: ruamel.yaml's, with its marks.
        text: the whole record.
        name: how errors show the file.
    """
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    index = mark.index if mark else 0
    problem = " ".join(str(error.problem or error).split())
    where = f"{name}:{line}:{column}"
    char = text[index : index + 1]
    if "cannot start any token" in problem:
        if char == "\t":
            return RecordError(where, "spaces", "a tab character", "two spaces")
        hint = f"quotes around a value that starts with {char}"
        return RecordError(where, "a value", f"the character {char!r}", hint)
    if "mapping values are not allowed" in problem:
        before = text[index - column + 1 : index]
        if ":" not in before:
            indent = len(before) - len(before.lstrip())
            return RecordError(f"{name}:{line}:{indent + 1}", "the next key", _OTHERWISE, _BESIDE)
        expected = "one key and value on a line, indented as the keys around it"
        return RecordError(where, expected, "a second ':'", 'quotes around text that holds ": "')
    if "could not find expected ':'" in problem:
        return _no_colon(error.context_mark or mark, text, name)
    if "unexpected end of stream" in problem:
        opened = error.context_mark
        at = f" opened at line {opened.line + 1}" if opened else ""
        return RecordError(where, f"the closing quote of the text{at}", "the end of the file", "adding the quote")
    expected, _, got = problem.partition(", but ")
    got = got.removeprefix("found ").removeprefix("got ")
    got = got.replace("'<", "").replace(">'", "").replace("<", "").replace(">", "").strip("(,)")
    got = _TOKENS.get(got, got)
    if got and expected.startswith("expected "):
        what = expected.removeprefix("expected ")
        what = what.replace("the node content", "a value").replace("<block end>", "the next key")
        what = what.replace("'<document start>'", "one mapping")
        return RecordError(where, what, got, _hint(error, got, index))
    hint = "single quotes around the text" if "escape" in problem else ""
    return RecordError(where, "YAML 1.2", problem.removeprefix("found "), hint)


def _no_colon(mark: Any, text: str, name: str) -> RecordError:
    """A line where a key should stand and no colon follows."""
    line = text[mark.index :].splitlines()[0].strip()
    key, _, rest = line.partition(" ")
    rest = rest.lstrip(": ")
    hint = f"a colon and a space: {key.rstrip(':')}: {_short(rest)}" if rest else "a colon after the key"
    where = f"{name}:{mark.line + 1}:{mark.column + 1}"
    return RecordError(where, "a key and its value, as key: value", repr(_short(line)), hint)


def _hint(error: Any, got: str, index: int) -> str:
    opened = error.context_mark
    if opened and "flow" in str(error.context):
        closing = f"closing what line {opened.line + 1} opens" if opened.index < index else "closing the open bracket"
        return closing if got == _TOKENS["stream end"] else f"a comma between entries, or {closing}"
    if got == _TOKENS["scalar"]:
        return "quotes around the whole text"
    if got in ("'}'", "']'"):
        return f"removing the {got[1]}"
    return _BESIDE if got in _TOKENS.values() else ""


def _short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
