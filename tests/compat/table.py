"""The compatibility table as Markdown. Nothing in it depends on the day or the machine, so it changes only when
results do."""
import sys
from pathlib import Path

from row import BOTH, LOADS, Row

sys.path.append(str(Path(__file__).resolve().parent.parent / "interop"))
import summary  # noqa: E402 (of the last `make interop`)

HEAD = """# Programs that run on Verbena
Unmodified, as Debian 12 ships them, under `verbena run`, in a network namespace with `lo` and a veth pair; as root and
as an ordinary user without home or runtime directory. Written by `tests/compat/run.py --write`; each line is checked by
`make test`, those under *heavy* by `make compat`.

*works*: does what is described. *loads*: the program finds Verbena and stays whole; what it is for comes later, see the
remark. *skipped*: couldn't be tried on the machine that wrote this. *fails*: a bug.
"""
COLUMNS = ("program", "options", "what it shows", "root", "ordinary user", "remark")


def markdown(rows: dict[str, Row], verdicts: dict[tuple[str, str], tuple[str, str]]) -> str:
    lines = [HEAD]
    theme = ""
    for name, row in rows.items():
        if name.split(".")[0] != theme:
            theme = name.split(".")[0]
            lines += ["" if len(lines) > 1 else None, f"## {theme}", line(COLUMNS), line(("---",) * len(COLUMNS))]
        lines.append(row_line(name, row, verdicts))
    lines += ["", summary.section(summary.PAGE.read_text())]
    lines += [(Path(__file__).parent / "not_there.md").read_text(), packages(rows)]
    return "\n".join(text for text in lines if text is not None) + "\n"


def row_line(name: str, row: Row, verdicts) -> str:
    cells = [cell(row, verdicts.get((name, user))) for user in BOTH]
    reasons = {why for user in BOTH for verdict, why in [verdicts.get((name, user), ("", ""))] if verdict == "skip"}
    remark = "; ".join(part for part in (row.remark, *sorted(reasons)) if part)
    return line((code(row.program), code(row.options), row.shows, *cells, remark))


def cell(row: Row, verdict: tuple[str, str] | None) -> str:
    if verdict is None:
        return "n/a"
    return {"pass": "loads" if row.state == LOADS else "works", "skip": "skipped", "FAIL": "**fails**"}[verdict[0]]


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |"


def packages(rows: dict[str, Row]) -> str:
    named = sorted({(row.package, row.program) for row in rows.values() if row.package})
    by_package = {}
    for package, program in named:
        by_package.setdefault(package, []).append(program)
    shown = (f"{package} ({', '.join(programs)})" for package, programs in by_package.items())
    return f"Packages: {'; '.join(shown)}."
