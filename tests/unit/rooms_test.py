#!/usr/bin/env python3
"""The house rules that a machine can check: who includes whom, and what each room must have.

Usage: rooms_test.py [TREE]     TREE is the project's root, by default the one this script lies in.
"""
import pathlib
import re
import subprocess
import sys

# The one table: which rooms a room may include (docs: STYLE, "Our house"). A room may always include itself.
BELOW_CLIENT = "base roce engine arena ipc verbs local net wire cm sim"
MAY_INCLUDE = {
    "base": "",
    "roce": "base",
    "engine": "base roce",
    "arena": "base",
    "ipc": "base",
    "verbs": "base arena engine",
    "local": "base arena verbs engine",
    "net": "base roce",
    "wire": "base arena roce engine verbs net",
    "cm": "base roce ipc",
    "agent": "base roce arena ipc net cm engine",
    "sim": "base roce engine verbs arena cm",
    "client": BELOW_CLIENT,
    "keeper": "client ipc local verbs arena base",
    "abi": "client verbs base arena",
    "tools": "client arena ipc net sim base",
}
MUST_HAVE = ("CMakeLists.txt", "README.md")
LONGEST_FILE = 450
CODE = {".cpp", ".hpp", ".c", ".h", ".S"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
# A path of the machine on which somebody works; in pieces, so that this line isn't one.
OUR_MACHINE = re.compile(r"(?<![\w.)}/-])/" + r"work\b|/" + r"work/(main|shared|\.)")


def check_includes(tree, path):
    """Yields what is wrong with the #include "..." lines of a file in src/."""
    room = path.relative_to(tree / "src").parts[0]
    allowed = {room, *MAY_INCLUDE.get(room, "").split()}
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        where = f"{path.relative_to(tree)}:{number}"
        included = pathlib.PurePosixPath(found[1])
        if ".." in included.parts:
            yield f'{where}: "{included}" climbs out of its directory; write "room/file.hpp"'
        elif len(included.parts) > 1 and included.parts[0] in MAY_INCLUDE:
            if included.parts[0] not in allowed:
                yield f"{where}: room {room} may not include {included.parts[0]} ({included})"
            elif not (tree / "src" / included).is_file():
                yield f'{where}: there is no src/{included}'
        elif not (path.parent / included).is_file():
            yield f'{where}: "{included}" names no room and no neighbour'


def check_rooms(tree):
    src = tree / "src"
    rooms = sorted(p.name for p in src.iterdir() if p.is_dir())
    for room in sorted(set(rooms) | set(MAY_INCLUDE)):
        if room not in MAY_INCLUDE:
            yield f"src/{room}: no such room in the table of tests/unit/rooms_test.py"
        if room not in rooms:
            yield f"src/{room}: the room is missing"
            continue
        for name in MUST_HAVE:
            if not (src / room / name).is_file():
                yield f"src/{room}: has no {name}"
    for path in sorted(p for p in src.rglob("*") if p.is_file()):
        if "__pycache__" in path.parts:
            continue
        lines = len(path.read_bytes().splitlines())
        if lines > LONGEST_FILE:
            yield f"{path.relative_to(tree)}: {lines} lines, {LONGEST_FILE} at most; is it two rooms?"
        if path.suffix in CODE:
            yield from check_includes(tree, path)


def files_of(tree):
    """All files that are or would be tracked; of a tree that isn't a repository, all."""
    listed = subprocess.run(["git", "-C", str(tree), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, check=False)
    if listed.returncode == 0:
        paths = [tree / name for name in listed.stdout.decode().split("\0") if name]
    else:
        paths = list(tree.rglob("*"))
    return sorted({p for p in paths if p.is_file() and not p.is_symlink()})


def check_paths(tree):
    for path in files_of(tree):
        content = path.read_bytes()
        if b"\0" in content:
            continue  # not text
        for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
            if OUR_MACHINE.search(line):
                yield f"{path.relative_to(tree)}:{number}: an absolute path of our machine: {line.strip()[:100]}"


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    tree = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else here
    if not (tree / "src").is_dir():
        sys.exit(f"rooms_test: {tree} has no src/")
    wrong = [*check_rooms(tree), *check_paths(tree)]
    for line in wrong:
        print(line)
    print(f"rooms_test: {len(wrong)} things wrong in {tree}" if wrong else "rooms_test: all in order")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
