"""Files that are damaged, cut short, or made to do harm: the same answers or a clear error, never anything else."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import zlib

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import svelto
from file_cases import CASES, CORPUS, answers, sealed
from svelto._rowfiles import UnreadableFileError
from svelto.io.file import ALIGNMENT, PREAMBLE, read_file
from svelto.io.plain import to_plain

FILES = {path.stem: path for path in sorted((CORPUS / "v1").glob("*.svelto"))}
# One file is flipped byte by byte; of the others some bytes, all of them in the slow test.
WHOLE = ("machine",)
SOME = 31
# Long sweeps go over these; over the others in `make test-slow`.
QUICK = ("exact_csr", "lists", "local_linear", "pipeline", "promised", "promised_rim", "sv_tree", "svm_tree_planes")
SWEPT = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FILES]


def try_file(path, expected):
    """Load and ask; True if that gave the expected answers, False for a clear refusal. Anything else is an error."""
    try:
        model = svelto.load(path)
    except UnreadableFileError as error:
        if str(path) not in str(error):
            raise
        return False
    for found, wanted in zip(answers(model), expected, strict=True):
        assert_array_equal(found, wanted)
    return True


# -- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_cut_short_anywhere(name, tmp_path):
    data = FILES[name].read_bytes()
    for percent in range(100):
        (tmp_path / "f").write_bytes(data[: len(data) * percent // 100])
        assert not try_file(tmp_path / "f", [])
    (tmp_path / "f").write_bytes(data + b"\0")
    assert not try_file(tmp_path / "f", [])


def _flip_all(name, path, places):
    data = FILES[name].read_bytes()
    expected = answers(svelto.load(FILES[name]))
    for place in places(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        assert not try_file(path, expected), f"byte {place} of {name} is not covered"


@pytest.mark.parametrize("name", FILES)
def test_single_bytes_flipped(name, tmp_path):
    step = 1 if name in WHOLE else SOME
    _flip_all(name, tmp_path / "f", lambda n: range(len(name) % step, n, step))


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_byte_flipped(name, tmp_path):
    _flip_all(name, tmp_path / "f", range)


@pytest.mark.parametrize("name", ["promised", "local", "svm_tree"])
def test_blocks_lost(name, tmp_path):
    """Sectors of zeros, as a disk or a broken copy leaves them, and two halves of different files."""
    data = FILES[name].read_bytes()
    for start in range(0, len(data), 512):
        lost = data[:start] + bytes(len(data[start : start + 512])) + data[start + 512 :]
        (tmp_path / "f").write_bytes(lost)
        assert lost == data or not try_file(tmp_path / "f", [])
    other = FILES["exact_classes"].read_bytes()
    (tmp_path / "f").write_bytes(data[: len(data) // 2] + other[len(data) // 2 :])
    assert not try_file(tmp_path / "f", [])


# -- writing that fails --------------------------------------------------------------------------------------------

WRITER = """
import resource, sys, os
import numpy as np
import svelto
from svelto.io.file import write_file
path, what = sys.argv[1:]
vectors = np.random.default_rng(0).normal(size=(400, 50))
weights = np.ones(400)
machine = svelto.KernelMachine.from_arrays(kernel="rbf", support_vectors=vectors, dual_coef=weights, classes=[0, 1])
if what == "full":
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        machine.save(path)
    except OSError as error:
        print("refused", error.errno)
else:
    while True:
        machine.save(path)
        print("saved", flush=True)
"""


def _writer(path, what):
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path), what]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of processes")
def test_a_full_disk(tmp_path):
    path = tmp_path / "f.svelto"
    CASES["machine"]().save(path)
    before = path.read_bytes()
    with _writer(path, "full") as process:
        out = process.communicate(timeout=300)[0]
    assert out.split() == ["refused", "27"]
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["f.svelto"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_killed_while_saving(tmp_path):
    """Whenever it ends, there is a whole file under the name."""
    path = tmp_path / "f.svelto"
    with _writer(path, "kill") as process:
        assert process.stdout.readline() == "saved\n"
        for round_ in range(3):
            time.sleep(0.03 + 0.011 * round_)
            assert svelto.load(path).n_sv == 400  # while it is being replaced
        process.send_signal(signal.SIGKILL)
    assert svelto.load(path).n_sv == 400


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    """Also for root, whom permissions do not stop: the system's refusal is what counts."""
    path = tmp_path / "f.svelto"
    CASES["machine"]().save(path)
    before = path.read_bytes()
    builtin = open

    def refuse(name, mode="r", *args, **options):
        if "x" in mode:
            raise PermissionError(13, "Permission denied", str(name))
        return builtin(name, mode, *args, **options)

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(PermissionError):
        CASES["machine"]().save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["f.svelto"]


# -- harm on purpose -----------------------------------------------------------------------------------------------


class Forged:
    """A file of the corpus whose contents can be changed; its checksums are right again afterwards."""

    def __init__(self, name):
        file = read_file(FILES[name])
        header_length = PREAMBLE.unpack_from(FILES[name].read_bytes())[2]
        self.header = json.loads(FILES[name].read_bytes()[ALIGNMENT : ALIGNMENT + header_length])
        self.arrays = {key: np.array(file.array(key)) for key in file.entries}

    @property
    def content(self):
        return self.header["content"]

    def write(self, path):
        room = 0
        while True:
            offset, table, body = ALIGNMENT + room, [], b""
            for name, array in self.arrays.items():
                raw = array.tobytes()
                shape, dtype = list(array.shape), array.dtype.str
                table.append({"name": name, "dtype": dtype, "shape": shape, "offset": offset, "crc32": zlib.crc32(raw)})
                body += raw.ljust(-(-len(raw) // ALIGNMENT) * ALIGNMENT, b"\0")
                offset = ALIGNMENT + room + len(body)
            text = json.dumps({**self.header, "arrays": table}).encode()
            if len(text) <= room:
                path.write_bytes(sealed(text.ljust(room), body))
                return path
            room = -(-len(text) // ALIGNMENT) * ALIGNMENT


def harmless(forged, path):
    """Refused, or answered somehow without harm, whichever; the process is still there afterwards."""
    for verify in (True, False):
        try:
            model = svelto.load(forged.write(path), verify=verify)
        except UnreadableFileError:
            continue
        # A parameter may ask for what the model has not, which it then says.
        with np.errstate(all="ignore"), contextlib.suppress(ValueError):
            answers(model)


def test_forging_without_a_change_changes_nothing(tmp_path):
    for name, path in FILES.items():
        assert try_file(Forged(name).write(tmp_path / "f"), answers(svelto.load(path)))


def put(array, value):
    array.ravel()[0] = value
    return array


# What native code, or a walk in Python, would follow out of its memory.
PLACES = (
    ("exact_csr", "machine/support_vectors.indices"),
    ("exact_csr", "machine/support_vectors.indptr"),
    ("exact_csr", "engine/group_start_f64"),
    ("exact_classes", "machine/n_support"),
    ("exact_classes", "machine/vote_order"),
    ("exact_classes", "engine/group_start_f32"),
    ("precomputed", "machine/support_columns"),
    ("precomputed", "engine/stages/0/vectors"),
    ("precomputed", "engine/stages/0/trees/0/column"),
    ("taylor_tree", "engine/stages/0/children"),
    ("certified_tree", "engine/stages/0/children"),
    ("promised", "engine/stages/1/children"),
    ("sv_tree", "engine/stages/0/trees/0/children"),
    ("sv_tree", "engine/stages/0/trees/0/column"),
    ("sv_tree", "engine/stages/0/trees/0/test"),
    ("lists", "engine/method/firsts"),
    ("lists", "engine/method/order"),
    ("lists", "engine/method/last"),
    ("references", "engine/method/references"),
    ("projection", "engine/method/basis"),
    ("svm_tree", "chains/chain_start"),
    ("svm_tree", "chains/end"),
    ("svm_tree", "chains/classes_of_chain"),
    ("svm_tree", "chains/order"),
    ("svm_tree_planes", "facts_kind"),
    ("svm_tree_planes", "node_hard"),
    ("local", "codes"),
    ("local", "cover_centres"),
    ("local", "cover_neighbours"),
    ("local", "cover_centre_of_row"),
    ("local", "models_class_start"),
    ("local", "models_classes"),
    ("local", "models_pair_start"),
    ("local", "models_support_start"),
    ("local", "models_support"),
)


@pytest.mark.parametrize(("name", "array"), PLACES, ids=lambda text: text.replace("/", "."))
def test_numbers_that_lead_astray(name, array, tmp_path):
    for value in (2**31 - 1, -(2**31)):
        for place in (slice(1), slice(-1, None), slice(None)):
            forged = Forged(name)
            forged.arrays[array].ravel()[place] = value
            for verify in (True, False):
                with pytest.raises(UnreadableFileError):
                    svelto.load(forged.write(tmp_path / "f"), verify=verify)


@pytest.mark.parametrize(
    ("name", "tree"), [("taylor_tree", "engine/stages/0/"), ("sv_tree", "engine/stages/0/trees/0/")]
)
def test_trees_that_never_end(name, tree, tmp_path):
    """A child that is its own parent, an earlier node, or the child of two."""
    n = len(Forged(name).arrays[tree + "children"])
    for node in range(n):
        for child in {0, node, max(node - 1, 0)}:
            forged = Forged(name)
            forged.arrays[tree + "children"][node] = child
            with pytest.raises(UnreadableFileError):
                svelto.load(forged.write(tmp_path / "f"))


@pytest.mark.parametrize("name", SWEPT)
def test_every_number_that_is_not_finite(name, tmp_path):
    """NaN and infinity in every array of floats: refused, or without effect on anything but answers."""
    for array, values in Forged(name).arrays.items():
        if values.dtype.kind == "f" and values.size:
            for value in (np.nan, np.inf):
                forged = Forged(name)
                put(forged.arrays[array], value)
                harmless(forged, tmp_path / "f")


FINITE = (
    ("exact", "machine/support_vectors"),
    ("exact", "machine/dual_coef"),
    ("exact_csr", "machine/support_vectors.data"),
    ("machine", "support_vectors"),
    ("hinges", "engine/stages/0/weights_0"),
    ("promised", "engine/guards/0/centres"),
    ("promised_rim", "engine/guards/0/core_sq_radii"),
    ("svm_tree_planes", "chains/planes"),
    ("local", "rows"),
    ("local", "models_coef"),
)


@pytest.mark.parametrize(("name", "array"), FINITE, ids=lambda text: text.replace("/", "."))
def test_nan_where_numbers_must_be_finite(name, array, tmp_path):
    forged = Forged(name)
    put(forged.arrays[array], np.nan)
    with pytest.raises(UnreadableFileError, match=r"finite|largest value is nan"):
        svelto.load(forged.write(tmp_path / "f"))


# Arrays that some models have and others do not.
OPTIONAL = ("n_support", "slope", "shift", "var_", "mean_", "among_near", "weight", "factors")
OPTIONAL += ("data_min_", "data_max_", "data_range_", "max_abs_")


@pytest.mark.parametrize("name", SWEPT)
def test_arrays_of_other_lengths_and_types(name, tmp_path):
    """Every array longer, shorter, of another type, missing; and one that is too many."""
    keys = list(Forged(name).arrays)

    def changed(key, change):
        forged = Forged(name)
        with np.errstate(invalid="ignore"):
            forged.arrays[key] = change(forged.arrays[key])
        harmless(forged, tmp_path / "f")

    for key in keys:
        changed(key, lambda array: array[:-1])
        changed(key, lambda array: np.concatenate([array, array[-1:]]))
        changed(key, lambda array: array[..., :1])
        changed(key, lambda array: array[None])
        changed(key, lambda array: array.astype("<i8" if array.dtype == np.float64 else "<f8"))
        changed(key, lambda array: array[:0])
        forged = Forged(name)
        del forged.arrays[key]
        if key.split("/")[-1] in OPTIONAL:
            harmless(forged, tmp_path / "f")
            continue
        with pytest.raises(UnreadableFileError):
            svelto.load(forged.write(tmp_path / "f"))
    forged = Forged(name)
    forged.arrays["more"] = np.zeros(3)
    with pytest.raises(UnreadableFileError, match="nothing is known about the array more"):
        svelto.load(forged.write(tmp_path / "f"))


def _values(content, path=()):
    """Every value of a nested content, by the keys that lead to it."""
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from _values(value, (*path, key))


EVIL_VALUES = (None, -1, 0, 2**31, 2**70, 1.5, 1e308, "x", "__import__('os')", True, [], {}, [[]], {"float": "nan"})


@pytest.mark.parametrize("name", SWEPT)
def test_values_of_other_types(name, tmp_path):
    """Every value of the header replaced by something strange, and left out; each in turn gets one of the strange."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for path in list(_values(Forged(name).content)):
        if path[0] in ("report", "tried"):
            continue
        for value in (*rng.choice(len(EVIL_VALUES), 3, replace=False).tolist(), "left out"):
            forged = Forged(name)
            inner = forged.content
            for key in path[:-1]:
                inner = inner[key]
            if value == "left out":
                del inner[path[-1]]
            else:
                inner[path[-1]] = EVIL_VALUES[value]
            harmless(forged, tmp_path / "f")


@pytest.mark.parametrize(
    "damage", [[], {}, {"dict": []}, {"dict": [["method", 3]]}, "text", {"dict": [[[], 1]]}], ids=str
)
def test_reports_that_are_none(damage, tmp_path):
    for key in ("report", "tried"):
        forged = Forged("exact")
        forged.content[key] = damage
        if key == "tried" and damage == []:
            continue
        with pytest.raises(UnreadableFileError):
            svelto.load(forged.write(tmp_path / "f"))


@pytest.mark.parametrize("fact", ["score_error_bound", "build_seconds", "agreement"])
def test_reports_with_numbers_that_are_no_floats(fact, tmp_path):
    forged = Forged("exact")
    for pair in forged.content["report"]["dict"]:
        if pair[0] == fact:
            pair[1] = 10**400
    with pytest.raises(UnreadableFileError, match="the report has other facts"):
        svelto.load(forged.write(tmp_path / "f"))


def test_scalers_say_how_many_features_a_row_has(tmp_path):
    """Where the machine does not: predictors have a width in any case."""
    forged = Forged("pipeline")
    forged.content["machine"]["n_features"] = None
    fast = svelto.load(forged.write(tmp_path / "f"))
    assert fast.n_features_in_ == 2
    with pytest.raises(ValueError, match="expecting 2 features"):
        fast.predict(np.zeros((4, 3)))


def test_kinds_that_nobody_knows(tmp_path):
    forged = Forged("exact")
    forged.header["kind"] = "os.system"
    with pytest.raises(UnreadableFileError, match=r"holds a 'os\.system'; this svelto knows predictor"):
        svelto.load(forged.write(tmp_path / "f"))
    forged = Forged("taylor_tree")
    forged.content["engine"]["stages"][0]["kind"] = "svelto.predictor.Predictor"
    with pytest.raises(UnreadableFileError, match="expected one of hinges"):
        svelto.load(forged.write(tmp_path / "f"))
    forged = Forged("pipeline")
    forged.content["machine"]["front"][0]["scaler"] = "FunctionTransformer"
    with pytest.raises(UnreadableFileError, match="expected one of StandardScaler"):
        svelto.load(forged.write(tmp_path / "f"))


def test_scalers_that_do_not_fit_the_machine(tmp_path):
    forged = Forged("pipeline")
    forged.content["machine"]["n_features"] = 3
    with pytest.raises(UnreadableFileError, match=r"differ in width: \[2, 2, 3, 2\]"):
        svelto.load(forged.write(tmp_path / "f"))


def test_trees_of_columns_that_rows_need_not_have(tmp_path):
    forged = Forged("precomputed")
    forged.content["machine"]["n_features"] = None
    svelto.load(forged.write(tmp_path / "f"))
    name = "engine/stages/0/vectors"
    forged.arrays[name] = np.full_like(forged.arrays[name], 10_000)
    with pytest.raises(UnreadableFileError, match="vectors"):
        svelto.load(forged.write(tmp_path / "f"))


@pytest.mark.parametrize("value", [-1e-9, 1e9, np.nan, np.inf], ids=str)
def test_cores_that_are_larger_than_their_guard_or_none(value, tmp_path):
    for name in ("core_box_limit", "core_direction_limit"):
        forged = Forged("promised_rim")
        forged.content["engine"]["guards"][0][name] = to_plain(value, name)
        with pytest.raises(UnreadableFileError, match=r"not between 0 and the guard's own|expected a finite number"):
            svelto.load(forged.write(tmp_path / "f"))
    for verify in (True, False):
        forged = Forged("promised_rim")
        forged.arrays["engine/guards/0/core_sq_radii"][-1] = value
        with pytest.raises(UnreadableFileError, match=r"not between 0 and the guard's own|not finite"):
            svelto.load(forged.write(tmp_path / "f"), verify=verify)


@pytest.mark.parametrize("value", [0.5, -3.0, 1e9, np.nan, np.inf], ids=str)
def test_factors_of_cores(value, tmp_path):
    forged = Forged("promised_rim")
    forged.content["engine"]["guards"][0]["core_factor"] = to_plain(value, "core_factor")
    with pytest.raises(UnreadableFileError, match=r"not between 1 and|expected a finite number"):
        svelto.load(forged.write(tmp_path / "f"))


def test_cores_of_which_a_part_is_missing(tmp_path):
    for name in ("core_box_limit", "core_direction_limit", "core_factor"):
        forged = Forged("promised_rim")
        del forged.content["engine"]["guards"][0][name]
        with pytest.raises(UnreadableFileError, match=f"{name} is missing"):
            svelto.load(forged.write(tmp_path / "f"))
    forged = Forged("promised_rim")
    del forged.arrays["engine/guards/0/core_sq_radii"]
    with pytest.raises(UnreadableFileError, match="nothing is known about engine/guards/0/core_box_limit"):
        svelto.load(forged.write(tmp_path / "f"))
    for name in ("core_box_limit", "core_direction_limit", "core_factor"):
        del forged.content["engine"]["guards"][0][name]
    assert svelto.load(forged.write(tmp_path / "f"))._engine.guard.core is None


def test_loading_imports_nothing_that_a_file_names(tmp_path):
    """In a process that would notice: no pickle, no import, no code object is made."""
    script = textwrap.dedent(
        """
        import sys
        import svelto, svelto.io.saved
        def hook(event, args):
            if watching and (event in ("pickle.find_class", "os.system", "subprocess.Popen", "exec", "import")):
                raise SystemExit(f"{event} {args}")
        watching = False
        sys.addaudithook(hook)
        svelto.load(sys.argv[1])  # what is imported when it is first needed
        watching = True
        for path in sys.argv[1:]:
            svelto.load(path)
        watching = False
        print("quiet")
        """
    )
    names = [str(path) for path in FILES.values()]
    done = subprocess.run(
        [sys.executable, "-c", script, *names], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "quiet\n", done.stderr
