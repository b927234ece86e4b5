"""SML: scalars, the strict subset, printing, edits that keep comments."""

# ruff: noqa: E501

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scellis_core.errors import RecordError
from scellis_core.record import Record, canonical_bytes, parse_override
from scellis_core.record.edit import add_keys, remove, set_value
from scellis_core.record.sml import dumps, line_column, parse, print_flow, resolve

NUMBERS = {
    "3e-4": 3e-4, "1e-4": 1e-4, "1e4": 1e4, "1E4": 1e4, "1e+4": 1e4, "+1e-4": 1e-4, "-1e-4": -1e-4, "1.e-4": 1e-4, ".5": 0.5,
    "5.": 5.0, "-.5e1": -5.0, "3.0e-4": 3e-4, "0.1": 0.1, "1.0": 1.0, "-0.0": -0.0, ".inf": math.inf, "-.Inf": -math.inf,
    "+.INF": math.inf, "1": 1, "-1": -1, "+7": 7, "0": 0, "007": 7, "0x1F": 31, "0o17": 15, "9007199254740991": 2**53 - 1,
}  # fmt: skip
TEXTS = [
    "no",
    "yes",
    "on",
    "off",
    "y",
    "1_000",
    "1e",
    "e4",
    "0b11",
    "1:30",
    "2026-01-02",
    "1.2.3",
    "-",
    "nan",
    "inf",
    "0x",
    "+",
    ".",
    "TRue",
    "1e-4x",
]


@pytest.mark.parametrize(("text", "value"), NUMBERS.items())
def test_numbers(text: str, value: float) -> None:
    for form in (f"a: {text}", f"a: {text}  # c", f"{{ a: {text} }}", f"- {text}", f"a:\n  - {text}"):
        node = parse(form).root
        while node.kind != "scalar":
            node = node.items[0] if node.kind == "list" else node.entries["a"][1]
        assert type(node.scalar) is type(value)
        assert canonical_bytes(node.scalar) == canonical_bytes(value)


@pytest.mark.parametrize("text", [t for t in TEXTS if t != "-"])
def test_text(text: str) -> None:
    assert parse(f"a: {text}").root.data() == {"a": text}
    assert parse(f"a: '{text}'").root.data() == {"a": text}


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_null(text: str) -> None:
    assert parse(f"a: {text}").root.data() == {"a": None}


def test_nan_and_booleans() -> None:
    assert parse("[.nan, .NaN, true, False]").root.data()[2:] == [True, False]  # type: ignore[index]
    assert math.isnan(resolve(".NAN"))  # type: ignore[arg-type]


def test_json_is_sml() -> None:
    assert parse('{"a":1,"b":[true,null,"x\\u00e9"]}').root.data() == {"a": 1, "b": [True, None, "xé"]}


def test_block_scalars_and_crlf() -> None:
    assert parse("a: |\r\n  one\r\n  two\r\nb: >-\r\n  x\r\n  y\r\n").root.data() == {"a": "one\ntwo\n", "b": "x y"}


REFUSED = {
    "a: &x 1": "run.sml:1:4 a: expected no anchors, got &x; try quotes around text that starts with &",
    "a: *norm*": 'run.sml:1:4 a: expected no aliases, got *norm*; try quotes: "*norm*"',
    "a: !!str 1": "run.sml:1:4 a: expected no tags, got !!str; try quotes around text that starts with !",
    "a: !x [1]": "run.sml:1:4 a: expected no tags, got !x; try quotes around text that starts with !",
    "b: 1\n<<: { a: 1 }": "run.sml:2:1: expected no merge keys, got <<; try writing the keys out",
    "a: 1\nb: { c: 1, c: 2 }": "run.sml:2:12 b.c: expected each key once, got it again (first at line 2); try removing one of the two",
    "a: 1\n---\nb: 2": "run.sml:2:1: expected one document, got a second one; try a file for each record",
    "%YAML 1.1\n---\na: 1": "run.sml:1:1: expected no % directives, got one; try removing the line that starts with %",
    "1: a": 'run.sml:1:1: expected a key that is text, got 1; try quotes: "1"',
    "true: a": 'run.sml:1:1: expected a key that is text, got true; try quotes: "true"',
    "[a]: 1": 'run.sml:1:1: expected a key that is text, got something else; try quotes around a key such as "*"',
    "? a\n: 1": "run.sml:1:3: expected a key written as key: value, got a key after ?; try removing the ?",
    "a: 1\n\tb: 2": "run.sml:2:1: expected spaces, got a tab character; try two spaces",
    "a:\n  b: 1\n\t c: 2": "run.sml:3:1: expected spaces, got a tab character; try two spaces",
    "a: 1\n b: 2": "run.sml:2:2: expected the next key, got a key that is indented otherwise; try indenting it as the keys beside it",
    "a:\n    b: 1\n  c: 2": "run.sml:3:3: expected the next key, got a key that is indented otherwise; try indenting it as the keys beside it",
    "a: 1\n- b": "run.sml:2:1: expected the next key, got a list item beside keys; try indenting it as the keys beside it",
    "a: b: c": "run.sml:1:5: expected one key and value on a line, indented as the keys around it, got a second ':'; try quotes around text that holds \": \"",
    "a: 1\nb 6\nc: 2": "run.sml:2:1: expected a key and its value, as key: value, got 'b 6'; try a colon and a space: b: 6",
    "a: 1\nb :2\n": "run.sml:2:1: expected a key and its value, as key: value, got 'b :2'; try a colon and a space: b: 2",
    "a: 1\nb": "run.sml:2:1: expected a key and its value, as key: value, got 'b'; try a colon after the key",
    "a: { b: 1 }}": "run.sml:1:12: expected the next key, got '}'; try removing the }",
    "a: {": "run.sml:1:5: expected a value, got the end of the file; try closing the open bracket",
    'a: "\\q"': "run.sml:1:6: expected YAML 1.2, got unknown escape character 'q'; try single quotes around the text",
    "a: @x": "run.sml:1:4: expected a value, got the character '@'; try quotes around a value that starts with @",
    "a: [1, 2": "run.sml:1:9: expected ',' or ']', got the end of the file; try closing what line 1 opens",
    "a: { b: 1 c: 2 }": "run.sml:1:12: expected ',' or '}', got ':'; try a comma between entries, or closing what line 1 opens",
    "a: 'x": "run.sml:1:6: expected the closing quote of the text opened at line 1, got the end of the file; try adding the quote",
    "a: 'x' y": "run.sml:1:8: expected the next key, got more text; try quotes around the whole text",
    "a: 1e999": "run.sml:1:4 a: expected a number within the range of f64, got 1e999; try quotes, if it is text",
    "a: 9007199254740992": "run.sml:1:4 a: expected an integer within 2^53 - 1, got 9007199254740992; try quotes, if it is text",
    "a: " + "9" * 5000: "run.sml:1:4 a: expected an integer within 2^53 - 1, got "
    + "9" * 37
    + "...; try quotes, if it is text",
    "a: \x00": 'run.sml:1:4: expected printable text, got character U+0000; try an escape in double quotes: "\\u0000"',
    "a: 1\nb: x\u2028": 'run.sml:2:5: expected printable text, got character U+2028; try an escape in double quotes: "\\u2028"',
    'a: "\\ud800"': "run.sml:1:4 a: expected Unicode text, got half of a surrogate pair; try the character itself",
    "a: " + "[" * 5000: "run.sml:1:35 a.0.0: expected at most 32 levels of nesting, got more; try a flatter record",
    "": "run.sml:1:1: expected a mapping of keys, got an empty file; try starting with: sml: 1",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse(text)
    assert str(caught.value) == REFUSED[text]


def test_too_long() -> None:
    with pytest.raises(RecordError, match="at most 4194304 characters, got 4194305"):
        parse("#" * (4 * 1024 * 1024 + 1))


def test_byte_order_mark_is_skipped() -> None:
    assert parse("\ufeffa: 1").root.data() == {"a": 1}


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_any_text_parses_or_is_a_record_error(text: str) -> None:
    message = "run.sml:"
    try:
        parse(text)
    except RecordError as error:
        message = str(error)
    assert message.startswith("run.sml:")


keys = st.text("abcxyz_0123456789.-/ :#'\"\\\u00e9", min_size=1, max_size=5) | st.sampled_from(
    ["on", "no", "null", "1", "in", "<<", "?", "a b"]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=True)
    | st.text(max_size=12)
    | st.sampled_from(TEXTS)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)


@given(st.dictionaries(keys, values, max_size=4), st.integers(10, 90))
@settings(max_examples=300, deadline=None)
def test_print_parse_round_trip(data: dict[str, Any], width: int) -> None:
    text = dumps(data, width)
    back = parse(text).root.data()
    assert canonical_bytes(back) == canonical_bytes(data)
    assert dumps(back, width) == text  # type: ignore[arg-type]
    assert canonical_bytes(parse(print_flow(data)).root.data()) == canonical_bytes(data)


def _styled(value: Any, rng: random.Random, indent: int, comments: list[str]) -> str:
    """Print in a random layout; the text follows ``key:`` or ``-`` and ends without a newline."""

    def note() -> str:
        if rng.random() < 0.6:
            return ""
        comments.append(f"# note {len(comments)}")
        return "  " + comments[-1]

    pad = " " * indent
    if isinstance(value, str) and value and value.isalnum() and rng.random() < 0.3:
        return rng.choice([f" '{value}'", f" |-\n{pad} {value}", f' "{value}"'])
    if value is None and rng.random() < 0.4:
        return note()
    if not isinstance(value, dict | list) or not value or rng.random() < 0.3:
        if isinstance(value, list) and value and rng.random() < 0.5:
            return " [\n" + "".join(f"{pad} {print_flow(v)},\n" for v in value) + f"{pad} ]"
        return " " + print_flow(value) + note()
    lines: list[str] = []
    for head, item in (
        [(f"{k}:", v) for k, v in value.items()] if isinstance(value, dict) else [("-", v) for v in value]
    ):
        if rng.random() < 0.2:
            comments.append(f"# above {len(comments)}")
            lines += [pad + comments[-1]]
        lines.append(pad + head + _styled(item, rng, indent + 2, comments))
        if rng.random() < 0.1:
            lines.append("")
    return note() + "\n" + "\n".join(lines)


plain_keys = st.text("abcdef", min_size=1, max_size=3)
plain_values = st.recursive(
    st.integers(0, 9) | st.none() | st.text("xyz", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_keys, inner, max_size=3),
)


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    pairs = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [path] * bool(path) + [p for key, item in pairs for p in _paths(item, (*path, key))]


@given(
    st.dictionaries(plain_keys, plain_values, min_size=1, max_size=4), plain_values, st.randoms(use_true_random=False)
)
@settings(max_examples=300, deadline=None)
def test_edits_read_back_and_keep_comments(data: dict[str, Any], value: Any, rng: random.Random) -> None:
    comments: list[str] = []
    text = _styled(data, rng, 0, comments).lstrip("\n ")
    if rng.random() < 0.5:
        text += "\n"
    if rng.random() < 0.2:
        text = text.replace("\n", "\r\n")
    document = parse(text)
    assert document.root.data() == data
    path = rng.choice(_paths(data))
    changed = set_value(document, path, value)
    node = document.find(path)
    assert node is not None
    if node.kind == "scalar" or node.flow:
        kept = [c for c in comments if c not in text[node.start : node.end]]
        assert [c for c in kept if c not in changed] == []
    again = parse(changed).find(path)
    assert again is not None
    assert again.data() == value
    holder = rng.choice([p for p in [(), *_paths(data)] if isinstance(_at(data, p), dict | list)])
    new: str | int = "new_key" if isinstance(_at(data, holder), dict) else len(_at(data, holder))
    added = set_value(document, (*holder, new), value)
    assert [c for c in comments if c not in added] == []
    removed = parse(remove(document, path)).root
    assert removed.data() == _without(data, path)


def _at(data: Any, path: tuple[str | int, ...]) -> Any:
    for part in path:
        data = data[part]
    return data


def _without(data: Any, path: tuple[str | int, ...]) -> Any:
    if isinstance(data, dict):
        return {k: _without(v, path[1:]) if k == path[0] else v for k, v in data.items() if (k,) != path}
    return [_without(v, path[1:]) if i == path[0] else v for i, v in enumerate(data) if (i,) != path]


EDITS = [
    ("a: 1  # one\nb: 2\n", ("a",), 3, "a: 3  # one\nb: 2\n"),
    ("a:   # none yet\nb: 2", ("a",), 3, "a: 3   # none yet\nb: 2"),
    ("o: { x: 1 }  # o\n", ("o", "y"), [1, 2], "o: { x: 1, y: [1, 2] }  # o\n"),
    ("o: {}\n", ("o", "y"), 1, "o: { y: 1 }\n"),
    ("o: { x }\n", ("o", "x"), 1, "o: { x: 1 }\n"),
    ("o: { x: }\n", ("o", "y"), 1, "o: { x: null, y: 1 }\n"),
    ("o:\n  x: 1 # x\n# end\n", ("o", "y"), "no", 'o:\n  x: 1 # x\n  y: "no"\n# end\n'),
    ("l:\n- 1 # a\n- 2\nz: 0", ("l", 2), 3, "l:\n- 1 # a\n- 2\n- 3\nz: 0"),
    ("l:\n  - a: 1\n    b: 2\n", ("l", 0, "c"), 3, "l:\n  - a: 1\n    b: 2\n    c: 3\n"),
    ("a: 1", ("p", "q", "r"), 0.5, "a: 1\np: { q: { r: 0.5 } }"),
    ("t: |\n  x\n  y\nz: 1\n", ("t",), "new", "t: new\nz: 1\n"),
    ("a: 1\nt: |\n  x\n", ("b",), 2, "a: 1\nt: |\n  x\nb: 2\n"),
    ("o:\n  x: 1\n  y: 2\nz: 1\n", ("o",), {"k": 1}, "o: { k: 1 }\nz: 1\n"),
]


@pytest.mark.parametrize(("text", "path", "value", "want"), EDITS)
def test_edit(text: str, path: tuple[str | int, ...], value: Any, want: str) -> None:
    assert set_value(parse(text), path, value) == want


REMOVALS = [
    ("a: 1 # one\nb: 2 # two\n", ("a",), "b: 2 # two\n"),
    ("a: 1 # one\nb: 2", ("b",), "a: 1 # one"),
    ("o: { x: 1, y: 2, z: 3 } # o", ("o", "x"), "o: { y: 2, z: 3 } # o"),
    ("o: { x: 1, y: 2 }", ("o", "y"), "o: { x: 1 }"),
    ("o: { x: 1 }", ("o", "x"), "o: {  }"),
    ("o:\n  x: 1\nz: 2\n", ("o", "x"), "o: {}\nz: 2\n"),
    ("l:\n  - a: 1\n    b: 2\n", ("l", 0, "a"), "l:\n  - b: 2\n"),
    ("l: [1, 2, 3]", ("l", 1), "l: [1, 3]"),
]


@pytest.mark.parametrize(("text", "path", "want"), REMOVALS)
def test_remove(text: str, path: tuple[str | int, ...], want: str) -> None:
    assert remove(parse(text), path) == want


def test_add_keys_to_any_root() -> None:
    assert add_keys(parse("a: 1"), {"b": {"c": 2}}).text == "a: 1\nb: { c: 2 }"
    assert add_keys(parse("{ a: 1 }"), {"b": 2, "c": 3}).text == "{ a: 1, b: 2, c: 3 }"
    assert add_keys(parse("  a: 1\n"), {"b": 2, "c": 3}).text == "  a: 1\n  b: 2\n  c: 3\n"


def test_edit_errors() -> None:
    document = parse("a: 1\nl: [1]\n")
    for path, want in {
        ("a", "b"): "run.sml:1:4 a.b: expected a mapping at a, got 1",
        ("l", 3): "run.sml:2:4 l.3: expected an index from 0 to 1, got 3",
        ("l", "x"): "run.sml:2:4 l.x: expected an index from 0 to 1, got 'x'",
        (): "run.sml: expected the path of a key, got an empty path; try a path such as optimizer.lr",
    }.items():
        with pytest.raises(RecordError) as caught:
            set_value(document, path, 1)
        assert str(caught.value) == want
    with pytest.raises(RecordError) as caught:
        remove(document, ("aa",))
    assert str(caught.value) == "run.sml:1:1 aa: expected a key that is there, got nothing; try one of: a"


def test_override_text() -> None:
    assert parse_override("optimizer.lr=3e-4") == ("optimizer.lr", 3e-4)
    assert parse_override("peft.0.targets = blocks.*") == ("peft.0.targets", "blocks.*")
    assert parse_override("freeze=[a, b]") == ("freeze", ["a", "b"])
    with pytest.raises(RecordError) as caught:
        parse_override("lr")
    assert str(caught.value) == "override: expected key=value, got 'lr'; try optimizer.lr=3e-4"
    with pytest.raises(RecordError) as caught:
        parse_override("freeze=*norm*")
    assert str(caught.value) == 'override freeze:1:1: expected no aliases, got *norm*; try quotes: "*norm*"'


def test_line_column() -> None:
    assert [line_column("ab\r\nc\rd\ne", i) for i in (0, 2, 4, 6, 8)] == [(1, 1), (1, 3), (2, 1), (3, 1), (4, 1)]


def test_files(tmp_path: Path) -> None:
    (tmp_path / "run.sml").write_bytes(b"sml: 1\na: \xff\n")
    for name, want in {
        "run.sml": "run.sml:2:4: expected UTF-8 text, got byte 0xff at offset 10; try saving the file as UTF-8",
        "rum.sml": "rum.sml: expected a file, got nothing there; try one of: run.sml",
        ".": ".: expected a file, got a directory; try ./run.sml",
    }.items():
        with pytest.raises(RecordError) as caught:
            Record.load(tmp_path / name, name=name)
        assert str(caught.value) == want


def test_a_block_scalar_before_another_key_is_edited_without_its_neighbour() -> None:
    document = parse("f: |-\n   yx\nc: 4  # note\n")
    assert remove(document, ("f",)) == "c: 4  # note\n"
    nested = parse("a:  # note\n  e: |-\n     zx\nb: {}\n")
    assert parse(set_value(nested, ("a",), [1])).root.data() == {"a": [1], "b": {}}
