"""A part of a header: tables, code, and the Python object that answers with the same numbers.

Code is C text with ``$names`` (`string.Template`): ``$p`` is the model's name and ``$q`` the part's prefix. A part that
gives scores defines ``q_scores(u, s)``, or ``q_scores(u, s, e)`` where error scales are asked for: u is the row as
`c_space` prepares it, s and e have room for n_scores numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Template
from typing import Any

from svelto.export.c_tables import Dtype, Matrix, Table


@dataclass(frozen=True)
class Setting:
    """What all parts of a header share.

    Attributes
    ----------
    name : str
        The model's name.
    dtype : {"float32", "int16", "int8"}
        Of large tables.
    n_features : int
        Width of a row.
    """

    name: str
    dtype: Dtype
    n_features: int

    @property
    def real(self) -> str:
        """The type of sums."""
        return f"{self.name}_REAL"


@dataclass(frozen=True)
class Part:
    """Tables and code of one part.

    Attributes
    ----------
    prefix : str
        Of its names.
    tables : list of Table
        Its arrays.
    code : str
        Its functions.
    rounded : object
        What it was made of, with the numbers of its tables.
    """

    prefix: str
    tables: list[Table]
    code: str
    rounded: Any = None


def render(template: str, setting: Setting, prefix: str = "", **values: Any) -> str:
    """C text with its names filled in; a name without a value is a mistake of ours."""
    given = {"p": setting.name, "q": prefix, "d": setting.n_features, "real": setting.real, **values}
    return Template(template.lstrip("\n")).substitute(given)


def weighed(matrix: Matrix, setting: Setting, source: str = "u", to: str = "t") -> str:
    """Statements that make the input of a matrix of rows: a pointer to `source`, or `source` times column steps."""
    if matrix.column is None:
        return f"const float *{to} = {source};"
    return f"float {to}[{setting.n_features}];\n    {setting.name}_weigh({source}, {matrix.column}, {to});"
