"""From a row as the caller has it to the row that tables were made for.

The machine's scaling is applied, and a centre is taken off, so that features far from zero keep their digits:

    u = (x - shift) factor        or        u = x factor + shift        and then clipped, where the scaler clips

The centre may be any vector: it is chosen such that shift is a single float and no digit is lost. Kernels of products
need rows as they are (no centre), and a walk through a tree needs exactly the rows that it was built on: these have
shifts in double precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from svelto._typing import FloatArray
from svelto.export.c_parts import Part, Setting, render
from svelto.export.c_tables import Table, floats
from svelto.scaling import Scaling

CODE = """
/* The row that the tables were made for. */
static inline void ${p}_prepare(const float *x, float *u) {
    int k;
    for (k = 0; k < $d; ++k) {
        $real v = $formula;
$clip        u[k] = (float)v;
    }
}
"""


@dataclass(frozen=True)
class Space:
    """Where tables live.

    Attributes
    ----------
    centre : ndarray of shape (n_features,)
        Taken off scaled rows.
    part : Part or None
        ``p_prepare``; None where rows are used as they are.
    """

    centre: FloatArray
    part: Part | None


def make_space(setting: Setting, scaling: Scaling | None, centre: FloatArray, *, free: bool) -> Space:
    """The space around a centre.

    Parameters
    ----------
    setting : Setting
        Of the header.
    scaling : Scaling or None
        The machine's.
    centre : ndarray of shape (n_features,)
        Wanted centre, in scaled rows.
    free : bool
        Whether another centre nearby will do, and shifts may be single floats.
    """
    clips = scaling is not None and bool(np.isfinite([scaling.low, scaling.high]).any())
    centre = np.zeros_like(centre) if clips else np.asarray(centre, dtype=np.float64)
    name, real = setting.name, setting.real
    if scaling is None:
        if not centre.any():
            return Space(centre, None)
        centre = centre.astype(np.float32).astype(np.float64) if free else centre
        tables = [_shift(name, centre, free)]
        return Space(centre, _part(setting, tables, f"({real})x[k] - ({real}){name}_shift[k]"))
    if scaling.form == "divide":
        shift = scaling.shift + centre * scaling.factor
        if free and not clips:
            shift = shift.astype(np.float32).astype(np.float64)
            centre = (shift - scaling.shift) / scaling.factor
        tables = [_shift(name, shift, free and not clips), floats(f"{name}_factor", 1.0 / scaling.factor)]
        formula = f"(({real})x[k] - ({real}){name}_shift[k]) * ({real}){name}_factor[k]"
    else:
        shift = scaling.shift - centre
        if free and not clips:
            shift = shift.astype(np.float32).astype(np.float64)
            centre = scaling.shift - shift
        tables = [_shift(name, shift, free and not clips), floats(f"{name}_factor", scaling.factor)]
        formula = f"({real})x[k] * ({real}){name}_factor[k] + ({real}){name}_shift[k]"
    return Space(centre, _part(setting, tables, formula, scaling))


def _shift(name: str, values: FloatArray, as_single: bool) -> Table:
    return floats(f"{name}_shift", values) if as_single else Table(f"{name}_shift", values.astype(np.float64))


def _part(setting: Setting, tables: list[Table], formula: str, scaling: Scaling | None = None) -> Part:
    low, high = (-np.inf, np.inf) if scaling is None else (scaling.low, scaling.high)
    clip = ""
    for sign, limit in (("<", low), (">", high)):
        if np.isfinite(limit):
            number = f"({setting.real}){float(limit)!r}"
            clip += f"        if (v {sign} {number}) v = {number};\n"
    return Part(setting.name, tables, render(CODE, setting, formula=formula, clip=clip))
