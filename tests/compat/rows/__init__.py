"""The table: every theme's rows; and the matrix, which has a page of its own."""
from row import Row
from rows import (atomic, cm, command, devices, fio, heavy, libraries, matrix, middleware, multicast, network, pingpong,
                  read, run, send, srq, together, unreliable, verbatim, write,
                  xrc)

THEMES = {
    "devices": devices, "libraries": libraries, "run": run, "command": command,
    "pingpong": pingpong, "send": send, "write": write, "read": read, "atomic": atomic, "together": together,
    "verbatim": verbatim, "cm": cm, "network": network, "unreliable": unreliable, "multicast": multicast, "srq": srq,
    "xrc": xrc,
    "fio": fio, "middleware": middleware, "heavy": heavy,
}


def everything() -> dict[str, Row]:
    """theme.name → row, in the order of the table."""
    found = {}
    for theme, module in THEMES.items():
        for row in module.ROWS:
            name = f"{theme}.{row.name}"
            assert name not in found, f"two rows are called {name}"
            found[name] = row
    return found


def of_matrix() -> dict[str, Row]:
    return {f"matrix.{row.name}": row for row in matrix.ROWS}


def find(name: str) -> Row:
    return (everything() | of_matrix())[name]
