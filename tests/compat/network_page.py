"""docs/NETWORK.md: what the matrix of programs and circumstances (rows/matrix.py) found, on which day and machine."""
import platform
import subprocess
import time
from pathlib import Path

from row import ROOT, Row
from rows import matrix
from rows.network import IMPAIRED
from rows.unreliable import UNTIDY
from table import code, line

HEAD = """# Programs between two hosts
`make compat-network` wrote this page on {date}, from commit {commit}: kernel
{kernel}. Debian 12's programs, unmodified, as root under `verbena run`, on two hosts: network namespaces joined by
a veth pair, so that every byte goes over RoCEv2.

*passes*: both ends did what the same row of [COMPATIBILITY.md](COMPATIBILITY.md) says of one host. The *bad link* is
IPv4 with an MTU of 1500, and each end has
`VERBENA_FAULTS={impaired}`; *untidy* instead has
`{untidy}`, for programs that wait for each message of a service that repeats none. Counts above {few} are
{few} there, of messages of a megabyte {few_large}. **FAILS**: a bug. *–*: isn't run, see the notes.
"""


def first_line(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return (done.stdout.splitlines() or ["unknown"])[0]


def head() -> str:
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "../../src", "../../include"],
                             check=False, cwd=Path(__file__).parent).returncode == 1
    return HEAD.format(date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
                       commit=first_line("git", "rev-parse", "--short", "HEAD") + changed * " with changes",
                       kernel=platform.release(), impaired=IMPAIRED, untidy=UNTIDY, few=matrix.FEW,
                       few_large=matrix.FEW_LARGE)


class Page:
    def __init__(self, verdicts: dict[tuple[str, str], tuple[str, str]]):
        self.verdicts = verdicts
        self.notes: list[str] = []

    def verdict(self, made: Row) -> tuple[str, str]:
        return self.verdicts[f"matrix.{made.name}", ROOT]

    def cell(self, one: matrix.Line, circumstance: str) -> str:
        made = one.cells[circumstance]
        if isinstance(made, str):
            return f"– ({self.note(made)})"
        verdict, why = self.verdict(made)
        if verdict == "FAIL":
            return f"**FAILS** ({why})"
        words = "passes" if verdict == "pass" else "skipped"
        if circumstance == "bad" and matrix.faults(one.row) == UNTIDY:
            words += ", untidy"
        return f"{words} ({self.note(why)})" if why else words

    def note(self, text: str) -> int:
        if text not in self.notes:
            self.notes.append(text)
        return self.notes.index(text) + 1

    def totals(self) -> list[str]:
        found = []
        for key, circumstance in matrix.CIRCUMSTANCES.items():
            made = [one.cells[key] for one in matrix.LINES if isinstance(one.cells[key], Row)]
            passed = sum(self.verdict(row)[0] == "pass" for row in made)
            found.append(line((circumstance.heading, f"{passed} of {len(made)}")))
        return [line(("circumstance", "pass")), line(("---",) * 2), *found]

    def theme(self, theme: str) -> list[str]:
        headings = ("program", "options", "what it shows", *(each.heading for each in matrix.CIRCUMSTANCES.values()))
        found = ["", f"## {theme}", line(headings), line(("---",) * len(headings))]
        for one in (one for one in matrix.LINES if one.theme == theme):
            cells = (self.cell(one, key) for key in matrix.CIRCUMSTANCES)
            found.append(line((code(one.row.program), code(one.row.options), one.row.shows, *cells)))
        return found

    def closing(self) -> list[str]:
        notes = [f"{number}. {text}." for number, text in enumerate(self.notes, 1)]
        left_out = [f"- `{name}`: {why}." for name, why in matrix.LEFT_OUT.items()]
        return ["", "## Notes", *notes, "", "Not in these tables, of the one-host themes:", *left_out]


def markdown(verdicts: dict[tuple[str, str], tuple[str, str]]) -> str:
    page = Page(verdicts)
    themes = [text for theme in matrix.SOURCES for text in page.theme(theme)]
    return "\n".join([head(), *page.totals(), *themes, *page.closing()]) + "\n"
