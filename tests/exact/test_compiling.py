"""Kernels compile once, are kept where something can be written, and work where nothing can."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numba.core.compiler import Flags

import hardmax
from hardmax.exact import compiling, notices

SOURCE = Path(hardmax.__file__).parent


@pytest.fixture
def unsaid(monkeypatch):
    """As in a new process, which has said nothing yet."""
    monkeypatch.setattr(notices, "_said", set())


def _doubled(x):
    return 2.0 * x


def _called_twice(x):
    return _shifted(x, 0) + _shifted(x, 1) + _shifted(x, len(x))


@compiling.inner
def _shifted(x, by):
    return x[0] + by


def test_every_kernel_is_made_by_the_one_decorator():
    """Else it would not know where it may be kept, nor of the files it calls into."""
    direct = [
        f"{file.relative_to(SOURCE)}: {line.strip()}"
        for file in sorted(SOURCE.rglob("*.py"))
        if file.name != "compiling.py"
        for line in file.read_text().splitlines()
        if line.startswith(("import numba", "from numba"))
    ]
    assert direct == []


def test_constants_in_a_call_make_no_second_copy():
    caller = compiling.kernel(_called_twice, cache=False)
    assert caller(np.array([2.0, 3.0])) == 9.0
    assert len(_shifted.signatures) == 1


def test_where_no_folder_can_be_written_kernels_work_and_that_is_said_once(monkeypatch, unsaid):
    def nowhere(*_):
        raise RuntimeError("cannot cache function '_doubled': no locator available for file")

    monkeypatch.setattr(compiling.FunctionCache, "__init__", nowhere)
    first, second = compiling.kernel(_doubled), compiling.kernel(_doubled)
    with pytest.warns(RuntimeWarning, match=r"cannot be kept .*set NUMBA_CACHE_DIR to a folder that can be written"):
        assert first(1.5) == 3.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert second(1.5) == 3.0


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def test_a_kernel_is_kept_and_read_again(cache_folder):
    assert compiling.kernel(_doubled)(1.5) == 3.0
    assert list(cache_folder.rglob("*.nbi"))
    again = compiling.kernel(_doubled)
    assert again(2.5) == 5.0 and sum(again.stats.cache_hits.values()) == 1


def test_a_disk_that_fills_up_costs_only_the_next_start(cache_folder, monkeypatch, unsaid):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", full)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        assert compiling.kernel(_doubled)(1.5) == 3.0


def test_damaged_files_are_compiled_over(cache_folder, unsaid):
    compiling.kernel(_doubled)(1.5)
    for damage in (b"", b"\x80\x04", pickle.dumps("0.0.0")):
        for file in cache_folder.rglob("*.nb?"):
            file.write_bytes(damage)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert compiling.kernel(_doubled)(1.5) == 3.0


def test_a_change_in_a_file_that_kernels_call_into_is_noticed(cache_folder, monkeypatch):
    """numba itself looks at the function's own file alone, and would run what another one said before."""
    compiling.kernel(_doubled)(1.5)
    here = compiling._sources(Path(__file__).parent)
    assert "expansions.py" in [name for name, _, _ in here] and "rounding.py" in [name for name, _, _ in here]
    name, date, size = here[0]
    monkeypatch.setattr(compiling, "_sources", lambda _: ((name, date + 1, size), *here[1:]))
    changed = compiling.kernel(_doubled)
    assert changed(1.5) == 3.0 and not changed.stats.cache_hits


def test_while_compiling_settings_are_equal_as_before_and_all_is_put_back():
    plain, bold, explicit = Flags(), Flags(), Flags()
    bold.nrt, explicit.nrt = True, False  # the default
    pairs = list(product([plain, bold, explicit, "other"], repeat=2))
    expected, before, compared = [a == b for a, b in pairs], gc.get_threshold(), Flags.__eq__
    with suppress(ZeroDivisionError), compiling._brisk(), compiling._brisk():
        assert [a == b for a, b in pairs] == expected and plain == explicit != bold
        assert Flags.__eq__ is not compared and gc.get_threshold() != before
        raise ZeroDivisionError
    assert Flags.__eq__ is compared and gc.get_threshold() == before


def test_compiling_is_said_once_to_who_asks_and_to_nobody_else(unsaid, capfd):
    lines = []
    compiling.kernel(_doubled, cache=False)(1.5)  # nobody asked
    with notices.announced(lines.append):
        for _ in range(2):
            compiling.kernel(_doubled, cache=False)(1.5)
    assert lines == ["compiling kernels, once: about 15 s"]
    assert capfd.readouterr() == ("", "")


def test_a_process_on_a_read_only_file_system_works_and_says_so_once():
    program = (
        "import errno, os, sys\n"
        "from numba.core import caching\n"
        "def read_only(self): raise OSError(errno.EROFS, 'Read-only file system')\n"
        "caching._CacheLocator.ensure_cache_path = read_only\n"
        "import numpy as np\n"
        "from hardmax.networks.slices._slice_kernels import row_magnitudes\n"
        "from hardmax.networks.slices._slice_kernels import relu_then_linear\n"
        "print(row_magnitudes(np.ones((2, 3))).tolist(), row_magnitudes(np.ones((2, 3), order='F')).tolist())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout == "[1.0, 1.0] [1.0, 1.0]\n", done.stderr
    assert done.stderr.count("cannot be kept") == 1 and "Traceback" not in done.stderr


@pytest.mark.parametrize("raised", [KeyboardInterrupt, TimeoutError])
def test_what_a_signal_raises_while_a_kernel_runs_comes_out_as_it_is(raised):
    """numba runs Python code to hand arrays back, where the signal is answered and would be a SystemError."""

    def _answer(number, frame):
        raise raised

    @compiling.kernel(cache=False)
    def _slow(n):
        total = np.zeros(2)
        for i in range(n):
            total[i % 2] += 1.0 / (i + 1)
        return total, np.zeros(1)

    _slow(1)
    before = signal.signal(signal.SIGALRM, _answer)
    try:
        for _ in range(3):
            with pytest.raises(raised):
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                while True:
                    _slow(10**7)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_kernels_own_errors_are_left_alone():
    @compiling.kernel(cache=False)
    def _broken(n):
        raise SystemError("its own")

    with pytest.raises(SystemError, match="its own"):
        _broken(1)


_SHARED_KERNEL = """
from hardmax.exact.compiling import inner, kernel

@kernel
def shared(x, y):
    return [x[0] + y, y][0]

@inner
def between(x, y):
    return shared(x, y) + 1.0

@kernel
def outer(x, y):
    return between(x, y)
"""


def test_a_kernel_read_from_disk_for_an_inner_function_can_be_called_from_python(tmp_path):
    """Inner functions are compiled without machine code; what they call is not."""
    (tmp_path / "_shared_kernel.py").write_text(_SHARED_KERNEL)
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE.parent}{os.pathsep}{tmp_path}", "NUMBA_CACHE_DIR": ""}
    for program, wanted in (("shared(x, 2.0)", "3.0"), ("outer(x, 2.0), shared(x, 2.0)", "4.0 3.0")):
        text = f"import numpy as np; from _shared_kernel import *; x = np.ones(1); print({program})"
        done = subprocess.run(
            [sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=300
        )
        assert (done.returncode, done.stdout.strip()) == (0, wanted), done.stderr


def _first_row(table):
    return table[0]


def _sum_of_first_row(table):
    return _borrowed_row(table).sum()


_borrowed_row = compiling.borrowing(_first_row)


def test_a_borrowing_function_that_hands_on_an_array_is_refused():
    """Its caller would count the array down, though nobody counted it up."""
    with pytest.raises(Exception, match="array"):
        compiling.kernel(_sum_of_first_row, cache=False)(np.ones((2, 2)))


@compiling.kernel(cache=False, nogil=True)
def _marked(shared, marks):
    """Mark what is taken from the front, and put every third back once before."""
    seen, piece = -1, compiling.take_first(shared)
    while piece >= 0:
        if piece % 3 == 0 and piece != seen:
            seen = piece
            compiling.put_back(shared)
        else:
            marks[piece] += 1
        piece = compiling.take_first(shared)


def test_what_threads_share_is_taken_once():
    for n in [0, 1, 2, 7] + 60 * [30_000]:
        shared, marks, others = np.array([n]), np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        front = threading.Thread(target=_marked, args=(shared, marks))
        front.start()
        while front.is_alive():
            first, last = compiling.take_end(shared, 1 + n // 2)  # one at a time
            others[first:last] += 1
        front.join()
        assert np.array_equal(marks + others, np.ones(n)), n
    assert divmod(shared[0], 1 << 32) == (marks.sum(), marks.sum()) and others.any()
    assert [compiling.take_end(np.array([10 << 32 | 15]), parts) for parts in (1, 2, 5, 9)] == [
        (10, 15), (12, 15), (14, 15), (14, 15),
    ]  # fmt: skip
