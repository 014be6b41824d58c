"""``import hardmax`` is quick, pulls in nothing optional, and its table of public names tells the truth."""

import ast
import importlib
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

import hardmax

OPTIONAL = (
    "torch",
    "triton",
    "onnx",
    "onnxruntime",
    "matplotlib",
    "dask",
    "distributed",
    "pyarrow",
    "safetensors",
)


def _modules_after(code: str, watched: tuple[str, ...]) -> list[str]:
    """Which of the watched modules a fresh interpreter holds after running the code."""
    probe = f"{code}\nimport sys\nprint(*[name for name in {watched!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_importing_the_package_loads_nothing_optional_and_no_compiler():
    assert _modules_after("import hardmax", (*OPTIONAL, "numba", "scipy")) == []


def test_using_every_public_name_loads_nothing_optional():
    code = "import hardmax\nfor name in hardmax.__all__: getattr(hardmax, name)"
    assert _modules_after(code, OPTIONAL) == []


def test_the_command_line_starts_without_optional_packages_or_the_compiler():
    assert _modules_after("import hardmax.cli", (*OPTIONAL, "numba", "scipy")) == []


def test_the_detector_notices_a_forbidden_module():
    # A stand-in called torch, so that the twin also runs where torch is not installed.
    planted = "import sys, types\nsys.modules['torch'] = types.ModuleType('torch')\nimport hardmax"
    assert _modules_after(planted, OPTIONAL) == ["torch"]
    assert _modules_after("import decimal\nimport hardmax", ("decimal",)) == ["decimal"]


_WALK = """
import sys
import hardmax as hm
net = hm.builtin("lookup")
x = [[1.0 if row == column else 0.0 for column in range(net.input_shape[1])] for row in range(net.input_shape[0])]
called = set()
sys.setprofile(lambda frame, event, _: called.add(frame.f_globals.get("__name__", "")))
hm.analyse_heads(hm.capture(net, [x]))
sys.setprofile(None)
"""


def _rooms_of_the_walk(planted: str = "") -> tuple[set[str], set[str]]:
    """The rooms of the package that are loaded, and those whose functions are called, from models in to heads out."""
    code = f"{_WALK}{planted}\nprint(*sys.modules)\nprint(*called)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, called = done.stdout.splitlines()
    return tuple(
        {name.split(".")[1] for name in names.split() if name.startswith("hardmax.")} for names in (loaded, called)
    )


def test_from_a_model_to_its_analysed_heads_only_one_wing_and_the_cellar_are_crossed():
    cellar = {"networks", "tropical", "exact", "exactness", "errors", "underflow", "html", "views", "version"}
    loaded, called = _rooms_of_the_walk()
    assert "heads" in called and loaded - {"heads"} <= cellar and called <= loaded
    assert _rooms_of_the_walk("import hardmax.cells.search")[0] - {"heads"} > cellar - {"version"}  # it would notice


_USES = {  # and how many seconds each may take
    "import alone": ("import hardmax", 0.5),
    "every public name": ("import hardmax\nfor name in hardmax.__all__: getattr(hardmax, name)", 0.9),
}


@pytest.mark.parametrize("use", _USES)
def test_a_warm_import_is_quick(use):
    # processor time: the other test processes must not count
    code, most = _USES[use]
    probe = f"import time\nstart = time.process_time()\n{code}\nprint(time.process_time() - start)"

    def seconds() -> float:
        done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
        return float(done.stdout)

    seconds()  # the first run writes bytecode
    medians = []
    for _ in range(4):  # a busy machine gets further chances, a slow import fails them all
        medians.append(statistics.median(seconds() for _ in range(3)))
        if medians[-1] < most:
            break
    assert min(medians) < most, f"{use}: medians of three runs were {medians} s"


def _typed_names() -> dict[str, str]:
    """Public name -> module, as a type checker reads them in the package's TYPE_CHECKING block."""
    tree = ast.parse(Path(hardmax.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return {
        alias.asname: f"{line.module}.{alias.name}"
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }


def test_the_table_of_names_and_the_types_agree():
    table = {name: f"{module}.{name}" for name, module in hardmax._NAMES.items()} | hardmax._MODULES
    assert _typed_names() == table


@pytest.mark.parametrize("table", ["_DEFINED", "_MODULES"])
def test_the_table_of_names_is_sorted(table):
    names = list(getattr(hardmax, table))
    assert names == sorted(names)


@pytest.mark.parametrize("name", sorted(hardmax._NAMES))
def test_each_public_name_resolves_to_what_its_module_defines(name):
    module = importlib.import_module(hardmax._NAMES[name])
    assert getattr(hardmax, name) is getattr(module, name)


def test_dir_lists_every_public_name():
    assert set(hardmax.__all__) == set(dir(hardmax)) - {"__version__"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        hardmax.no_such_name  # noqa: B018


@pytest.mark.parametrize(
    "name", ["fidelity", "dynamics", "tropical", "models", "stability", "bounds", "claims", "reports"]
)
def test_a_namespace_shows_its_own_names_alone(name):
    """Completion offers nothing that was only imported: no errors, no typing, no other packages."""
    space = getattr(hardmax, name)
    for shown in dir(space):
        if shown.startswith("_"):
            continue
        found = getattr(space, shown)
        assert not isinstance(found, type(sys)) or shown == "as_published", shown
        assert getattr(found, "__module__", None) not in ("typing", "collections.abc", "hardmax.errors"), shown
    assert hardmax.tropical.TropicalPolynomial is hardmax.TropicalPolynomial
