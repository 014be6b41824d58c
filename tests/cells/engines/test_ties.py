"""Many keys tied in one point that no float holds: the normal case of attention, and where engines miscount."""

import numpy as np
import pytest

import hardmax as hm
from cells.descriptions import label_set, triple

_CIRCLE = [(x, y) for x in range(-5, 6) for y in range(-5, 6) if x * x + y * y == 25]  # twelve points
_LATTICE = [(x, y) for x in range(4) for y in range(4)]
_STAR = [(k * x, k * y) for x, y in ((1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, -1)) for k in (1, 2, 3)]
_LINE = [(k, 2 * k) for k in range(7)]
SITES = {"circle": _CIRCLE, "circle and centre": [*_CIRCLE, (0, 0)], "lattice": _LATTICE, "star": _STAR, "line": _LINE}


def _nearest_site(sites, scale, shift, residual=True, lifted=True):
    """Hard attention whose winner at x is the site nearest to scale * x - shift; ``lifted`` False drops |site|^2."""
    keys = np.array([[2 * x, 2 * y, -(x * x + y * y) if lifted else 0] for x, y in sites], dtype=float)
    query = np.array([[scale, 0.0], [0.0, scale], [0.0, 0.0]])
    values = np.array(sites, dtype=float)
    head = hm.Head(keys, values, query, np.array([-shift[0], -shift[1], 1.0]))
    attention = hm.Attention([head])
    return [hm.Residual(attention)] if residual else [attention]


def _assert_three_ways_agree(net, domain):
    found, exact = (hm.enumerate_cells(net, domain, exactness=mode) for mode in ("certified", "exact"))
    assert label_set(found) == label_set(exact)
    assert triple(found) == triple(exact)
    assert hm.count_cells(net, domain) == exact.n_cells
    assert found.certificate.ok, str(found.certificate)
    assert hm.verify(exact).ok
    pairs = [
        {frozenset((tuple(c.labels[i].tolist()), tuple(c.labels[j].tolist()))) for i, j in c.neighbours.tolist()}
        for c in (found, exact)
    ]
    assert pairs[0] == pairs[1]
    return found


@pytest.mark.parametrize("scale", [1.0, 3.0, 7.0, 0.1, 1 / 3])
@pytest.mark.parametrize("name", SITES)
def test_sites_tied_in_one_point_share_no_sliver(name, scale):
    for shift in ((0.0, 0.0), (1.0, 1.0), (0.1, -0.7)):
        for lifted in (True, False):
            net = hm.Network(_nearest_site(SITES[name], scale, shift, lifted=lifted), 2)
            box = hm.Box([-9 / scale, -9 / scale], [9 / scale, 10 / scale])
            _assert_three_ways_agree(net, box)


@pytest.mark.parametrize("scale", [1.0, 3.0, 7.0])
def test_twelve_sites_on_a_circle_have_twelve_sectors_that_meet_in_its_centre(scale):
    cells = _assert_three_ways_agree(hm.Network(_nearest_site(_CIRCLE, scale, (1.0, 1.0)), 2), hm.Box([-3, -3], [3, 3]))
    assert triple(cells) == (12, 12, 12) and len(cells.neighbours) == 12  # a ring: across the centre nobody touches
    everywhere = hm.enumerate_cells(cells.network, hm.Space(2))
    assert triple(everywhere) == (12, 12, 12) and len(everywhere.neighbours) == 12 and everywhere.certificate.ok


@pytest.mark.parametrize("scale", [3.0, 0.1])
def test_two_heads_with_one_arrangement_make_no_new_walls(scale):
    """The same walls twice, then a third head that passes through all their crossings."""
    one = _nearest_site(_LATTICE, scale, (1.0, 1.0), residual=False)[0].heads[0]
    diagonal = _nearest_site([(k, -k) for k in range(-4, 8)], scale, (1.0, 1.0), residual=False)[0].heads[0]
    box = hm.Box([-2 / scale, -2 / scale], [6 / scale, 6 / scale])
    single, double, triple_heads = (
        hm.Network([hm.Attention(heads)], 2) for heads in ([one], [one, one], [one, one, diagonal])
    )
    assert _assert_three_ways_agree(single, box).n_cells == _assert_three_ways_agree(double, box).n_cells == 16
    assert _assert_three_ways_agree(triple_heads, box).n_cells > 16


@pytest.mark.parametrize("scale", [1.0, 3.0, 0.1])
def test_ties_stay_exact_after_a_jump_and_a_second_layer(scale):
    layers = _nearest_site(_LATTICE, scale, (1.0, 1.0))
    layers += _nearest_site([(x - 1, y - 1) for x, y in _LATTICE[:9]], scale, (0.0, 0.0))
    layers += [hm.Affine([[1.0, -1.0], [1.0, 1.0]]), hm.ReLU()]
    box = hm.Box([-1 / scale, -1 / scale], [5 / scale, 5 / scale])
    assert _assert_three_ways_agree(hm.Network(layers, 2), box).n_cells > 30


def test_ties_in_space_and_on_a_slice_of_it():
    """The cube's eight corners: walls are the coordinate planes, and a slice through the diagonal sees them meet."""
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=float)
    net = hm.Network([hm.Residual(hm.Attention([hm.Head(corners, 3 * corners, 7 * np.eye(3), [1.0, 1.0, 1.0])]))], 3)
    assert triple(_assert_three_ways_agree(net, hm.Box([-1] * 3, [1] * 3))) == (8, 8, 8)
    assert triple(_assert_three_ways_agree(net, hm.Space(3))) == (8, 8, 8)
    plane = hm.Plane([0.0, 0.0, 0.0], [[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])
    assert _assert_three_ways_agree(net, plane).n_cells in (6, 7)


def test_ties_on_a_segment_are_one_breakpoint():
    """Along a line through the circle's centre all twelve sites tie at once: two cells, not thirteen."""
    net = hm.Network(_nearest_site(_CIRCLE, 3.0, (1.0, 1.0)), 2)
    through = hm.Segment([1 / 3 - 2.0, 1 / 3 - 1.0], [1 / 3 + 2.0, 1 / 3 + 1.0])
    _assert_three_ways_agree(net, through)
    exact = hm.Network(_nearest_site(_CIRCLE, 4.0, (1.0, 1.0)), 2)
    cells = _assert_three_ways_agree(exact, hm.Segment([0.25 - 2.0, 0.25 - 1.0], [0.25 + 2.0, 0.25 + 1.0]))
    assert cells.n_cells == 2 and cells.pieces.vertices.max() == 1.0 and 0.5 in cells.pieces.vertices
