"""docs/INTEROP.md, written from a run's verdicts and from deviations.md."""
from pathlib import Path

from rows import Row

WORDS = {"pass": "works", "FAIL": "fails", "": "–"}

HEAD = """# The kernel's Soft-RoCE as a peer
Verbena on one host and the Linux kernel's `rdma_rxe` on another, a guest with its own kernel, on one link (MTU 9000). Programs are
unmodified, as Debian 12 ships them; `peer` is the test's own (`tests/interop/peer.c`) and compares every byte. Each
row runs with the server in the guest (*rxe serves*) and with the server on the host (*Verbena serves*).
Written by `make interop`{when}.

*works*: both programs ended as described. *fails*: a bug, here or there; see the remark and the deviations below.

"""


def markdown(rows: list[Row], verdicts: dict[tuple[str, str], tuple[str, str]], kernel: str) -> str:
    text = HEAD.format(when=f", guest kernel {kernel}" if kernel else "")
    for theme in dict.fromkeys(row.theme for row in rows):
        text += f"## {theme}\n| program | options | IP | what it shows | rxe serves | Verbena serves | remark |\n"
        text += "| --- | --- | --- | --- | --- | --- | --- |\n"
        for row in (row for row in rows if row.theme == theme):
            ends = [verdicts.get((row.name, server), ("", "")) for server in ("guest", "host")]
            remark = "; ".join(dict.fromkeys(why for _, why in ends if why))
            text += (f"| `{row.program}` | {f'`{row.options}`' if row.options else ''} | {row.family} | {row.shows} | "
                     f"{WORDS[ends[0][0]]} | {WORDS[ends[1][0]]} | {remark} |\n")
        text += "\n"
    return text + (Path(__file__).parent / "deviations.md").read_text()
