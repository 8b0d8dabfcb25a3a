from __future__ import annotations

from dataclasses import replace

from numdrift.harness.graphs.drawing.drawing_layout import neighbourhood
from numdrift.harness.records.tools.graph_record import Graph, Node, Value


def chain(count: int) -> Graph:
    """n0 -> n1 -> ... of which each also takes the parameter w."""
    nodes = [
        Node(f"n{at}", "add", inputs=(f"n{at - 1}" if at else "x", "w"), outputs=(f"n{at}",)) for at in range(count)
    ]
    values = {name: Value("float32", (2,)) for name in ("x", "w", *(node.name for node in nodes))}
    return Graph("g", "cpu", "pre", "forward", 0, tuple(nodes), values, ("x", "w"), (f"n{count - 1}",))


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes]


def test_a_small_graph_stays_whole() -> None:
    graph = chain(5)
    assert neighbourhood(graph, ["n2"], 5) is graph


def test_the_nodes_nearest_to_the_centre_are_kept_in_their_order() -> None:
    part = neighbourhood(chain(50), ["n20"], 5)
    assert names(part) == ["n18", "n19", "n20", "n21", "n22"]


def test_what_the_part_takes_is_among_its_inputs_and_only_outputs_of_the_graph_are_its_own() -> None:
    inner, last = (neighbourhood(chain(50), [name], 3) for name in ("n20", "n49"))
    assert inner.inputs == ("n18", "w")
    assert inner.outputs == ()
    assert last.outputs == ("n49",)


def test_without_a_centre_that_is_there_it_begins_at_the_start() -> None:
    assert names(neighbourhood(chain(50), [], 3)) == ["n1", "n2", "n3"]
    apart = replace(chain(50), nodes=chain(50).nodes[::-1])
    assert names(neighbourhood(apart, ["elsewhere"], 3)) == ["n49", "n48", "n47"]


def test_pieces_that_hang_loose_at_the_start_are_left_out() -> None:
    loose = tuple(Node(f"m{at}", "t", inputs=("n9",), outputs=(f"m{at}",)) for at in range(3))
    assert names(neighbourhood(replace(chain(50), nodes=loose + chain(50).nodes), [], 6)) == [
        "n1",
        "n2",
        "n3",
    ]


def test_several_centres_share_the_room() -> None:
    assert names(neighbourhood(chain(50), ["n40", "n5"], 4)) == ["n4", "n5", "n6", "n40"]


def test_a_shared_input_makes_no_neighbours() -> None:
    apart = replace(chain(2), nodes=tuple(Node(f"m{at}", "f", inputs=("w",), outputs=(f"m{at}",)) for at in range(9)))
    assert names(neighbourhood(apart, ["m4"], 3)) == ["m4"]
