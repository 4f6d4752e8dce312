"""The part of docs/COMPATIBILITY.md about the kernel's Soft-RoCE: docs/INTEROP.md in short, read from that page, which
the last whole run wrote. Used by that run, and by whoever writes COMPATIBILITY.md."""
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/INTEROP.md"
COMPATIBILITY = ROOT / "docs/COMPATIBILITY.md"
TITLE = "## The kernel's Soft-RoCE as a peer"
HEAD = f"""{TITLE}
Verbena on a host, `rdma_rxe` of a guest with its own kernel on the other end of the link; the server is once this, once that.
Written from [INTEROP.md](INTEROP.md) (`make interop`), which has every row with its options, and each deviation whole.

| theme | program | IP | rows | rxe serves | Verbena serves |
| --- | --- | --- | --- | --- | --- |
"""
DEVIATIONS = """
Where rxe differs from the standard, and how we cope: [INTEROP.md](INTEROP.md#where-rxe-and-its-kernel-differ-from-the-standard-and-how-we-cope). In short:
"""


def cells(lines: list[str]) -> dict[tuple[str, str], list[list[str]]]:
    """The rows of the page's tables by theme and program."""
    found, theme = {}, ""
    for line in lines:
        if line.startswith("## "):
            theme = line[3:]
        elif line.startswith("| `"):
            row = [cell.strip() for cell in line.strip("|").split(" | ")]
            found.setdefault((theme, row[0].strip()), []).append(row)
    return found


def word(verdicts: list[str]) -> str:
    tried = [verdict for verdict in verdicts if verdict != "–"]
    works = tried.count("works")
    if not tried:
        return "–"
    return "works" if works == len(tried) else f"**{len(tried) - works} of {len(tried)} fail**"


def section(page: str) -> str:
    lines = page.splitlines()
    text = HEAD
    for (theme, program), rows in cells(lines).items():
        families = ", ".join(sorted({row[2] for row in rows}))
        text += (f"| {theme} | {program} | {families} | {len(rows)} | {word([row[4] for row in rows])} | "
                 f"{word([row[5] for row in rows])} |\n")
    named = [match.group(1) for line in lines if (match := re.match(r"- \*\*(.+?)\*\*", line))]
    return text + DEVIATIONS + "".join(f"- {name}.\n" for name in named)


def refresh() -> None:
    """COMPATIBILITY.md with this part as the page has it now, all else untouched."""
    new, text = section(PAGE.read_text()), COMPATIBILITY.read_text()
    begin = text.find(TITLE)
    if begin < 0:
        begin = end = text.index("## What the API knows")
    else:
        end = text.index("\n## ", begin) + 1
    COMPATIBILITY.write_text(text[:begin] + new + "\n" + text[end:])


if __name__ == "__main__":
    refresh()
