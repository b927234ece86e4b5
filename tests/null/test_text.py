"""IR text: what it looks like, that it parses back without loss, and how it refuses; no NumPy."""

from __future__ import annotations

import pytest

from scellis_core import ops
from scellis_core.errors import IRError
from scellis_core.ir import Graph, Type, digest, parse_graph, parse_graphs, print_graph, verify


def example() -> Graph:
    graph = Graph("micro")
    x = graph.load("x", Type("i32", (8, 64)))
    x.name = "x"
    with graph.at("embed"):
        h = ops.take(graph.param("embed.weight", Type("f32", (256, 32))), x)
    with graph.at("blocks.0.attn"):
        keep = ops.uniform(graph, h.shape, "dropout") >= 0.1
        h = ops.select(keep, h * 1.25, 0.0)
        h.name = "h"
    with graph.at("head"):
        logits = ops.matmul(h, graph.param("embed.weight", Type("f32", (256, 32))), transpose_b=True)
        lr = graph.scalar("lr")
    graph.store("state:mean", ops.mean(logits, (0, 2)) * lr)
    graph.output("logits", logits)
    return graph


EXPECTED = """\
graph micro draws=4096 {
  %x = load "x" : i32[8, 64]
  %1 = param "embed.weight" : f32[256, 32]  ; embed
  %2 = take %1 %x : f32[8, 64, 32]  ; embed
  %3 = philox stream="dropout" offset=0 : u32[8, 64, 32]  ; blocks.0.attn
  %4 = const value=8 : u32[8, 64, 32]  ; blocks.0.attn
  %5 = shr %3 %4 : u32[8, 64, 32]  ; blocks.0.attn
  %6 = cast %5 : f32[8, 64, 32]  ; blocks.0.attn
  %7 = const value=5.960464477539063e-08 : f32[8, 64, 32]  ; blocks.0.attn
  %8 = mul %6 %7 : f32[8, 64, 32]  ; blocks.0.attn
  %9 = const value=0.1 : f32[8, 64, 32]  ; blocks.0.attn
  %10 = le %9 %8 : bool[8, 64, 32]  ; blocks.0.attn
  %11 = const value=1.25 : f32[8, 64, 32]  ; blocks.0.attn
  %12 = mul %2 %11 : f32[8, 64, 32]  ; blocks.0.attn
  %13 = const value=0.0 : f32[8, 64, 32]  ; blocks.0.attn
  %h = select %10 %12 %13 : f32[8, 64, 32]  ; blocks.0.attn
  %15 = matmul %h %1 transpose_a=false transpose_b=true : f32[8, 64, 256]  ; head
  %16 = scalar "lr" : f32[]  ; head
  %17 = reduce_sum %15 axes=(0, 2) keepdims=false : f32[64]
  %18 = const value=0.00048828125 : f32[64]
  %19 = mul %17 %18 : f32[64]
  %20 = broadcast %16 : f32[64]
  %21 = mul %19 %20 : f32[64]
  store "state:mean" %21
  output "logits" %15
}
"""


def test_text_of_an_example() -> None:
    assert print_graph(example()) == EXPECTED


def test_round_trip_keeps_everything() -> None:
    graph = example()
    again = parse_graph(print_graph(graph))
    verify(again)
    assert print_graph(again) == EXPECTED
    assert digest(again) == digest(graph)
    assert (again.name, again.draws) == ("micro", 4096)
    assert [n.path for n in again.nodes] == [n.path for n in graph.nodes]
    assert [n.attrs for n in again.nodes] == [n.attrs for n in graph.nodes]
    assert [v.name for v in again.values()] == [v.name for v in graph.values()]


NAMES = ["w", 'a "quoted" name', "tab\there", "new\nline", "état:✓", "semi; colon", "back\\slash", "\ud800"]


@pytest.mark.parametrize("name", NAMES)
def test_any_text_survives(name: str) -> None:
    graph = Graph(name)
    graph.output(name, graph.param(name, Type("f32", ())))
    again = parse_graph(print_graph(graph))
    assert (again.name, list(again.outputs), list(again.leaves("param"))) == (name, [name], [name])
    assert print_graph(again) == print_graph(graph)


NUMBERS = [0.0, -0.0, 1.0, -1.5, 1e-45, 1.0000000000000002, 3.4e38, float("inf"), float("-inf"), float("nan")]


@pytest.mark.parametrize("number", NUMBERS)
def test_any_float_survives(number: float) -> None:
    graph = Graph("inf")
    graph.output("y", graph.const(number))
    again = parse_graph(print_graph(graph))
    assert digest(again) == digest(graph)
    assert repr(again.nodes[0].attrs["value"]) == repr(number)


def test_integers_flags_and_tuples_survive() -> None:
    graph = Graph("kinds")
    x = graph.load("x", Type("f32", (1, 2, 9, 9)))
    w = graph.param("w", Type("f32", (4, 1, 3, 3)))
    y = ops.conv2d(x, w, stride=(2, 1), padding=(1, 0, 2, 1), groups=2)
    z = ops.permute(ops.reduce_sum(y, (1,)), (2, 0, 1))
    graph.output("y", ops.concat([z, z], 0))
    graph.output("c", graph.const(True, "bool", (2,)))
    graph.output("i", graph.const(-7, "i32"))
    graph.output("n", ops.argmax(graph.load("v", Type("f32", (5,)))))
    text = print_graph(graph)
    assert "stride=(2, 1) padding=(1, 0, 2, 1) dilation=(1, 1) groups=2" in text
    assert "axes=(1,) keepdims=false" in text
    assert "const value=true : bool[2]" in text
    again = parse_graph(text)
    assert print_graph(again) == text
    assert digest(again) == digest(graph)


def test_written_by_hand() -> None:
    text = """
    ; a comment
    graph g {   ; another

      %a = load "x":f32[2,3]
      %b = reduce_sum %a axes=(1,) : f32[2] ; net
      %c = reshape %b shape=(1, 2) : f32[1, 2]
      store "s" %c
      output "y" %c
    }
    """
    graph = parse_graph(text)
    verify(graph)
    assert graph.nodes[1].attrs == {"axes": (1,), "keepdims": False}
    assert graph.nodes[1].path == "net"
    assert [v.name for v in graph.values()] == ["a", "b", "c"]


def test_duplicate_names_are_numbered_when_printed() -> None:
    graph = Graph("g")
    for k in range(3):
        graph.load(f"x{k}", Type("f32", ())).name = "h" if k != 1 else "not a name"
    text = print_graph(graph)
    assert [line.split()[0] for line in text.splitlines()[1:-1]] == ["%h", "%1", "%2"]
    assert print_graph(parse_graph(text)) == text


def test_several_graphs_in_one_text() -> None:
    text = EXPECTED + "\n" + EXPECTED.replace("graph micro", "graph other")
    assert [g.name for g in parse_graphs(text)] == ["micro", "other"]
    with pytest.raises(IRError, match="ir: expected one graph, got 2; try parse_graphs"):
        parse_graph(text)


HEAD = 'graph g {\n  %a = load "x" : f32[2, 3]\n'
REFUSALS = [
    ("", "t.ir: expected one graph, got 0; try parse_graphs"),
    ("grap g {\n}", "t.ir:1:1: expected graph NAME {, got grap"),
    ("graph g\n}", "t.ir:1:8: expected '{', got the end of the line"),
    ("graph g draws=-1 {\n}", "t.ir:1:15: expected a number of draws, got -1"),
    (HEAD, "t.ir: expected } at the end of the graph, got the end of the text"),
    (HEAD + "  %b = expp %a : f32[2, 3]\n}", "t.ir:3:8: expected a known op, got expp; try one of: exp, "),
    (HEAD + "  %b = exp %c : f32[2, 3]\n}", "t.ir:3:12: expected a value defined above, got %c; try one of: a"),
    (HEAD + "  %a = exp %a : f32[2, 3]\n}", "t.ir:3:3: expected a new name, got %a"),
    (HEAD + "  %b = exp %a : f32[2, 4]\n}", "t.ir:3 exp: expected f32[2, 3], got f32[2, 4]"),
    (HEAD + "  %b = exp %a : f31[2, 3]\n}", "t.ir:3:17: expected a dtype, got f31; try one of: f32, "),
    (HEAD + "  %b = exp %a : f32[2, -3]\n}", "t.ir:3:24: expected a size, got -3"),
    (HEAD + "  %b = exp %a\n}", "t.ir:3:14: expected ':', got the end of the line"),
    (HEAD + "  exp %a\n}", "t.ir:3 exp: expected f32[2, 3], got no result"),
    (HEAD + "  %b = exp %a axis=1 : f32[2, 3]\n}", "t.ir:3 exp: expected an attribute of the op, got axis"),
    (
        HEAD + "  %b = reduce_sum %a axes=(1,) axes=(0,) : f32[2]\n}",
        "t.ir:3:32: expected each attribute once, got axes",
    ),
    (
        HEAD + "  %b = reduce_sum %a axes=yes : f32[2]\n}",
        "t.ir:3:27: expected true, false, a number, a string or a tuple, got yes",
    ),
    (HEAD + "  %b = exp %a : f32[2, 3] 7\n}", "t.ir:3:27: expected the end of the line, got 7"),
    (HEAD + "  %b = exp @a : f32[2, 3]\n}", "t.ir:3:12: expected a token of IR text, got '@a : f32[2, '"),
    (HEAD + '  output "y" %z\n}', "t.ir:3:14: expected a value defined above, got %z; try one of: a"),
    (HEAD + '  store "\\q" %a\n}', 't.ir:3:9: expected a quoted name (JSON), got "\\q"'),
    (
        HEAD + "  %b = matmul %a %a : f32[2, 3]\n}",
        "t.ir:3 matmul: expected equal inner sizes, 3 of a, got 2 of b in f32[2, 3], f32[2, 3] with "
        "transpose_a=false transpose_b=false; try a transpose flag",
    ),
]


@pytest.mark.parametrize(("text", "message"), REFUSALS)
def test_refusals_give_line_and_column(text: str, message: str) -> None:
    with pytest.raises(IRError) as caught:
        parse_graph(text, "t.ir")
    found = str(caught.value)
    assert found.startswith(message) if message.endswith(", ") else found == message


def test_printing_refuses_what_would_not_parse_back() -> None:
    graph = Graph("g")
    with graph.at("two\nlines"):
        x = graph.load("x", Type("f32", ()))
    with pytest.raises(IRError, match="expected a block path of one line"):
        print_graph(graph)
    x.node.path = ""
    y = -x
    graph.nodes.reverse()
    with pytest.raises(IRError, match=r"g: neg: expected operands defined by an earlier node, got %\?: f32\[\]"):
        print_graph(graph)
    assert y.node is graph.nodes[0]
