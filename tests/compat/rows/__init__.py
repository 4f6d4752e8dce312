"""The table: every theme's rows."""
from row import Row
from rows import command, devices, libraries, run

THEMES = {"devices": devices, "libraries": libraries, "run": run, "command": command}


def everything() -> dict[str, Row]:
    """theme.name → row, in the order of the table."""
    found = {}
    for theme, module in THEMES.items():
        for row in module.ROWS:
            name = f"{theme}.{row.name}"
            assert name not in found, f"two rows are called {name}"
            found[name] = row
    return found


def find(name: str) -> Row:
    return everything()[name]
