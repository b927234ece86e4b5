"""Reverse mode: structure of the graphs it makes; no NumPy. Numbers are in tests/golden/test_ops.py."""

from __future__ import annotations

import pytest

from scellis_core import ops
from scellis_core.autodiff import gradients
from scellis_core.errors import IRError
from scellis_core.ir import Graph, Type, Value, digest, verify


def net(graph: Graph) -> Value:
    """A tied embedding and head, a block between them, and a loss."""
    x, y = graph.load("x", Type("i32", (4, 8))), graph.load("y", Type("i32", (4, 8)))
    with graph.at("embed"):
        table = graph.param("embed", Type("f32", (16, 6)))
        h = ops.take(table, x)
    with graph.at("block"):
        w, b = graph.param("w", Type("f32", (6, 6))), graph.param("b", Type("f32", (6,)))
        h = h + ops.gelu(ops.matmul(h, w, transpose_b=True) + b)
    with graph.at("head"):
        logits = ops.matmul(h, graph.param("embed", Type("f32", (16, 6))), transpose_b=True)
    with graph.at("loss"):
        return ops.reduce_sum(ops.logsumexp(logits) - ops.pick(logits, y))


def test_each_parameter_has_one_gradient_and_nothing_is_wasted() -> None:
    graph = Graph("g")
    loss = net(graph)
    params = list(graph.leaves("param").values())
    before = len(graph.nodes)
    found = gradients(graph, loss, params, graph.scalar("loss_scale"))
    verify(graph)
    for value in params:
        gradient = found[value]
        assert gradient is not None
        assert gradient.type == value.type
        graph.store(f"grad:{value.node.attrs['name']}", gradient)
    assert len(graph.stores()) == 3
    made = set(graph.nodes[before:])
    graph.output("loss", loss)
    graph.prune()
    assert made == made & set(graph.nodes), "every appended node is read"


def test_tied_weights_sum_both_uses() -> None:
    graph = Graph("g")
    loss = net(graph)
    table = graph.leaves("param")["embed"]
    gradient = gradients(graph, loss, [table])[table]
    assert gradient is not None
    assert gradient.node.op == "add"
    assert [v.node.op for v in gradient.node.inputs] == ["matmul", "scatter_add"]


def test_appended_nodes_carry_the_path_of_what_they_differentiate() -> None:
    graph = Graph("g")
    loss = net(graph)
    before = len(graph.nodes)
    gradients(graph, loss, list(graph.leaves("param").values()))
    paths = [n.path for n in graph.nodes[before:]]
    order = [p for i, p in enumerate(paths) if i == 0 or paths[i - 1] != p]
    assert order == ["loss", "head", "block", "embed"]
    assert graph.path == ""


def test_the_same_net_gives_the_same_graph() -> None:
    digests = set()
    for _ in range(2):
        graph = Graph("g")
        gradients(graph, net(graph), list(graph.leaves("param").values()))
        digests.add(digest(graph))
    assert len(digests) == 1


def test_only_what_leads_to_the_values_asked_for_is_emitted() -> None:
    graph = Graph("g")
    x = graph.load("x", Type("f32", (4, 6)))
    w, frozen = graph.param("w", Type("f32", (6, 5))), graph.param("frozen", Type("f32", (5, 3)))
    loss = ops.reduce_sum(ops.matmul(ops.tanh(ops.matmul(x, w)), frozen))
    before = len(graph.nodes)
    gradients(graph, loss, [w])
    made = [n.op for n in graph.nodes[before:]]
    assert made.count("matmul") == 2, "one through the frozen weight, one for w; none for x or the frozen weight"
    assert not {"permute", "reshape"} & set(made)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_gradients_of_products_are_products_with_flags(transpose_a: bool, transpose_b: bool) -> None:
    graph = Graph("g")
    a = graph.load("a", Type("f32", (2, 3, 5) if not transpose_a else (2, 5, 3)))
    b = graph.load("b", Type("f32", (2, 5, 7) if not transpose_b else (2, 7, 5)))
    loss = ops.reduce_sum(ops.matmul(a, b, transpose_a, transpose_b))
    before = len(graph.nodes)
    found = gradients(graph, loss, [a, b])
    assert [v.type for v in found.values() if v is not None] == [a.type, b.type]
    assert [n.op for n in graph.nodes[before:]] == ["const", "broadcast", "matmul", "matmul"]


def test_a_shared_weight_folds_the_batch_into_rows() -> None:
    graph = Graph("g")
    x, w = graph.load("x", Type("f32", (2, 3, 5))), graph.param("w", Type("f32", (7, 5)))
    loss = ops.reduce_sum(ops.matmul(x, w, transpose_b=True))
    before = len(graph.nodes)
    gradients(graph, loss, [w])
    assert [n.op for n in graph.nodes[before:]] == ["const", "broadcast", "reshape", "reshape", "matmul"]
    assert [v.shape for v in graph.nodes[-1].inputs] == [(6, 7), (6, 5)]


def test_integers_predicates_and_stops_let_nothing_through() -> None:
    graph = Graph("g")
    x, w = graph.load("x", Type("f32", (3,))), graph.param("w", Type("f32", (3,)))
    through_int = ops.cast(ops.cast(w, "i32"), "f32")
    stopped = ops.stop_gradient(w) * ops.floor(w)
    chosen = ops.select(w > 0.0, x, 1.0)
    loss = ops.reduce_sum(through_int + stopped + chosen)
    before = len(graph.nodes)
    assert gradients(graph, loss, [w]) == {w: None}
    assert len(graph.nodes) == before


def test_a_value_that_the_loss_does_not_read_has_no_gradient() -> None:
    graph = Graph("g")
    used, unused = graph.param("a", Type("f32", ())), graph.param("b", Type("f32", ()))
    _ = ops.exp(unused)
    found = gradients(graph, ops.square(used), [used, unused])
    assert found[used] is not None
    assert found[unused] is None


def test_by_an_intermediate_value_and_by_the_loss_itself() -> None:
    graph = Graph("g")
    x = graph.load("x", Type("f32", ()))
    y = ops.exp(x)
    loss = y * 3.0
    found = gradients(graph, loss, [y, loss])
    assert found[y] is not None
    one = found[loss]
    assert one is not None
    assert one.node.attrs["value"] == 1.0


def test_casts_go_back_to_their_source_dtype() -> None:
    graph = Graph("g")
    w = graph.param("w", Type("f32", (2, 2)))
    half = ops.cast(w, "f16")
    loss = ops.reduce_sum(ops.cast(ops.matmul(half, half), "f32"))
    gradient = gradients(graph, loss, [w])[w]
    assert gradient is not None
    assert (gradient.dtype, gradient.node.op, gradient.node.inputs[0].dtype) == ("f32", "cast", "f16")


def test_gradients_of_gradients_are_graphs_too() -> None:
    graph = Graph("g")
    loss = net(graph)
    w = graph.leaves("param")["w"]
    first = gradients(graph, loss, [w])[w]
    assert first is not None
    second = gradients(graph, ops.reduce_sum(ops.square(first)), [w])[w]
    assert second is not None
    assert second.type == w.type
    verify(graph)


def refused(build: object) -> str:
    with pytest.raises(IRError) as caught:
        build()  # type: ignore[operator]
    return str(caught.value)


def test_refusals() -> None:
    graph, other = Graph("g"), Graph("other")
    x = graph.load("x", Type("f32", (3,)))
    i = graph.load("i", Type("i32", ()))
    foreign = other.load("x", Type("f32", ()))
    loss = ops.reduce_sum(x)
    assert refused(lambda: gradients(graph, x, [x])) == (
        "gradients of g: expected a scalar loss, or a seed, got f32[3]; try ops.reduce_sum"
    )
    assert refused(lambda: gradients(graph, i, [x])) == (
        "gradients of g: expected a loss of float dtype, got i32[]; try ops.cast"
    )
    assert refused(lambda: gradients(graph, loss, [i])) == (
        "gradients of g: expected values of float dtype to differentiate by, got %?: i32[]"
    )
    assert refused(lambda: gradients(graph, loss, [foreign])) == (
        "gradients of g: expected values of this graph, got %?: f32[] of other"
    )
    assert refused(lambda: gradients(graph, loss, [x], x)) == "gradients of g: expected a seed f32[], got f32[3]"
