#!/usr/bin/python3 -B
"""Makes docs/PERFORMANCE.md and its plots from a run's JSON, and says in short who won.

Only a full run may become the page: a quick or partial one is shown here and left at that."""
import argparse
import json
import sys
from pathlib import Path

import connect_page
import guest_page
import objects_page
import page
import wire_page
from summary import LEVEL, LOSES, WINS, Results

ROOT = Path(__file__).resolve().parent.parent
FEWEST_ROUNDS = 3


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=Path, nargs="?", default=ROOT / "build/bench/results.json")
    parser.add_argument("--wire", type=Path, metavar="JSON", help="wire.py's figures (default: wire.json beside it)")
    parser.add_argument("--connect", type=Path, metavar="JSON", help="connect.py's (default: connect.json beside it)")
    parser.add_argument("--objects", type=Path, metavar="JSON", help="objects.py's (default: objects.json beside it)")
    parser.add_argument("--guest", type=Path, metavar="JSON", help="guest.py's (default: guest.json beside it)")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where PERFORMANCE.md and performance/ are")
    parser.add_argument("--force", action="store_true", help="write the page from a quick or partial run too")
    parser.add_argument("--no-page", action="store_true", help="only say who won")
    options = parser.parse_args()
    options.wire = options.wire or options.json.with_name("wire.json")
    options.connect = options.connect or options.json.with_name("connect.json")
    options.objects = options.objects or options.json.with_name("objects.json")
    options.guest = options.guest or options.json.with_name("guest.json")
    return options


def why_not_a_page(document: dict) -> str:
    settings = document["settings"]
    if settings["quick"]:
        return "a quick run"
    if settings["only"]:
        return f"a run of only '{settings['only']}'"
    if settings["rounds_complete"] < FEWEST_ROUNDS:
        return f"only {settings['rounds_complete']} complete rounds"
    return ""


def compact_json(document: dict) -> str:
    """A line for each measurement and ratio, so that two runs can be compared with diff."""
    parts = []
    for key, value in document.items():
        if isinstance(value, list) and value:
            rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in value)
            parts.append(f" {json.dumps(key)}: [\n{rows}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def write_page(document: dict, results: Results, wire: dict | None, connect: dict | None, objects: dict | None,
               guest: dict | None, docs: Path) -> None:
    import plots  # here, since it needs matplotlib, and saying who won doesn't
    import wire_plot

    folder = docs / "performance"
    folder.mkdir(parents=True, exist_ok=True)
    plots.draw_all(results, folder)
    (folder / "results.json").write_text(compact_json(document))
    if wire:
        wire_plot.draw(wire, folder)
        (folder / "wire.json").write_text(compact_json(wire))
    if connect:
        (folder / "connect.json").write_text(compact_json(connect))
    if objects:
        (folder / "objects.json").write_text(compact_json(objects))
    if guest:
        (folder / "guest.json").write_text(compact_json(guest))
    sections = [wire_page.text(wire) if wire else "", connect_page.text(connect) if connect else "",
                objects_page.text(objects) if objects else "", guest_page.text(guest) if guest else ""]
    (docs / "PERFORMANCE.md").write_text(page.text(document, results, "\n\n".join(filter(None, sections))))


def figures_beside(file: Path, what: str, options) -> dict | None:
    """None where they weren't measured, or aren't fit for a page that is to be written."""
    if not file.exists():
        return None
    found = json.loads(file.read_text())
    obstacle = why_not_a_page(found)
    if obstacle and not (options.force or options.no_page):
        print(f"report: {what} are {obstacle}: left out of the page")
        return None
    return found


def main() -> int:
    options = arguments()
    document = json.loads(options.json.read_text())
    results = Results(document)
    for operation, name, metric in page.comparisons():
        for peer in results.others:
            found = page.verdicts(results, peer, operation, metric)
            if found:
                print(f"{operation.upper():<5} {name:<10} against {peer:<8} {found}")
    count = page.tally(document)
    print(f"of {sum(count.values())} comparisons with rivals: {count[WINS]} won, {count[LEVEL]} level within noise, "
          f"{count[LOSES]} lost; {len(results.failures())} kinds of failure")
    if page.disturbance(document):
        print(page.disturbance(document).replace("**", ""))
    wire = figures_beside(options.wire, "the wire's figures", options)
    if wire:
        print(*wire_page.in_short(wire), sep="\n")
    connect = figures_beside(options.connect, "the figures of connecting", options)
    if connect:
        print(connect_page.in_short(connect))
    objects = figures_beside(options.objects, "the figures of many objects", options)
    if objects:
        print(objects_page.in_short(objects))
    guest = figures_beside(options.guest, "the guest's figures", options)
    if guest:
        print(*guest_page.in_short(guest), sep="\n")
    obstacle = why_not_a_page(document)
    if options.no_page:
        return 0
    if obstacle and not options.force:
        print(f"report: {obstacle}: docs/PERFORMANCE.md stays as it is (--force writes it)")
        return 0
    write_page(document, results, wire, connect, objects, guest, options.docs)
    print("report: docs/PERFORMANCE.md, docs/performance/ are written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
