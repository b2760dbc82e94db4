from swarm.graph.buffers import buffer_groups


def test_a_changed_buffer_goes_with_its_readers_and_the_maker_of_its_value(sketch):
    sketch.leaf("input", "x").leaf("buffer", "u").leaf("buffer", "still")
    graph = sketch.op("x u", "a").op("a still", "b").op("b", "loss").graph(updates=[("u", "b")])
    (group,) = buffer_groups(graph)
    assert [graph.values[v].name for v in group.buffers] == ["u"]
    assert group.operators == (0, 1)


def test_buffers_that_become_each_other_are_one_group(sketch):
    sketch.leaf("input", "x").leaf("buffer", "u").leaf("buffer", "v").leaf("buffer", "w")
    sketch.op("x u", "a").op("a v", "b").op("b w", "c").op("c", "loss")
    graph = sketch.graph(updates=[("u", "v"), ("v", "w"), ("w", "c")])
    (group,) = buffer_groups(graph)
    assert len(group.buffers) == 3
    assert group.operators == (0, 1, 2)


def test_a_buffer_that_becomes_one_that_never_changes_stays_free(sketch):
    sketch.leaf("input", "x").leaf("buffer", "u").leaf("buffer", "still")
    graph = sketch.op("x still", "a").op("a", "loss").graph(updates=[("u", "still")])
    (group,) = buffer_groups(graph)
    assert group.operators == ()


def test_a_buffer_that_becomes_a_parameter_goes_with_its_first_use(sketch):
    sketch.leaf("input", "x").leaf("parameter", "p").leaf("buffer", "u")
    graph = sketch.op("x", "a").op("a p", "b").op("b p", "loss").graph(updates=[("u", "p")])
    (group,) = buffer_groups(graph)
    assert group.operators == (1,)
