"""Generators of cones against brute force, with repeated and redundant rows on purpose."""

from fractions import Fraction
from itertools import combinations, product

from hypothesis import example, given
from hypothesis import strategies as st

from hardmax.exact.elimination import rank
from hardmax.exact.integers import reduced
from hardmax.tropical._epigraph import generators


def _kernel(rows, dim):
    """A basis of the vectors on which all rows vanish, in rationals."""
    matrix = [[Fraction(entry) for entry in row] for row in rows]
    pivots = []
    for column in range(dim):
        row = next((i for i in range(len(pivots), len(matrix)) if matrix[i][column]), None)
        if row is None:
            continue
        place = len(pivots)
        matrix[place], matrix[row] = matrix[row], matrix[place]
        matrix[place] = [entry / matrix[place][column] for entry in matrix[place]]
        for i in range(len(matrix)):
            if i != place and matrix[i][column]:
                matrix[i] = [a - matrix[i][column] * b for a, b in zip(matrix[i], matrix[place], strict=True)]
        pivots.append(column)
    basis = []
    for free in sorted(set(range(dim)) - set(pivots)):
        vector = [Fraction(int(i == free)) for i in range(dim)]
        for place, column in enumerate(pivots):
            vector[column] = -matrix[place][free]
        basis.append(vector)
    return basis


def _dot(left, right):
    return sum(a * b for a, b in zip(left, right, strict=True))


def _tight_sets(rows, dim):
    """For each extreme ray, the rows that vanish on it: a kernel of one dimension more than the lines."""
    lines = _kernel(rows, dim)
    found = set()
    for chosen in combinations(range(len(rows)), dim - len(lines) - 1):
        kernel = _kernel([rows[i] for i in chosen], dim)
        if len(kernel) != len(lines) + 1:
            continue
        # Modulo the lines the kernel is a line; any of its vectors that is not one of them spans it.
        vector = next(v for v in kernel if any(_dot(row, v) for row in rows))
        for sign in (1, -1):
            values = [sign * _dot(row, vector) for row in rows]
            if max(values) <= 0:
                found.add(frozenset(i for i, value in enumerate(values) if value == 0))
    return found


def _agrees(rows, dim):
    result = generators(rows, dim)
    assert len(result.lines) == dim - rank(rows) == len(_kernel(rows, dim))
    assert all(_dot(row, line) == 0 for row in rows for line in result.lines)
    tight = []
    for ray in result.rays:
        values = [_dot(row, ray.vector) for row in rows]
        assert max(values, default=0) <= 0 and reduced(ray.vector) == ray.vector
        tight.append(frozenset(i for i, value in enumerate(values) if value == 0))
        assert sum(1 << i for i in tight[-1]) == ray.tight
    assert len(set(tight)) == len(tight)
    if rank(rows):
        assert set(tight) == _tight_sets(rows, dim)


# The cube's rows twice over, so that two rows no longer mean an edge, then a cut through the centre.
CUBE = [(*(sign * int(i == j) for j in range(3)), -1) for i, sign in product(range(3), (1, -1))]


@given(st.integers(1, 4).flatmap(lambda d: st.lists(st.tuples(*[st.integers(-2, 2)] * d), min_size=1, max_size=8)))
@example([row for row in CUBE for _ in range(2)] + [(1, 1, 1, 0)])
@example([(0, 0), (0, 0)])
@example([(1, 0), (-1, 0)])
@example([(1, 0), (-1, 0), (0, 1), (0, -1)])
def test_generators_are_those_of_brute_force(rows):
    _agrees(rows, len(rows[0]))


def test_a_cut_cube_has_the_corners_it_should():
    rows = [*CUBE, *CUBE, (1, 1, 1, 0)]
    corners = {ray.vector for ray in generators(rows, 4).rays}
    below = {(*c, 1) for c in product((-1, 1), repeat=3) if sum(c) < 0}
    on_it = {(*(Fraction(x) for x in c), 1) for c in product((-1, 0, 1), repeat=3) if sum(c) == 0 and 0 in c and any(c)}
    assert corners == below | on_it
    assert len(corners) == 10
