#!/usr/bin/env python3
"""Every C and C++ file is as clang-format would write it.

Usage: format_test.py [TREE]     TREE is the project's root, by default the one this script lies in.
"""
import pathlib
import re
import shutil
import subprocess
import sys

KINDS = ("*.cpp", "*.hpp", "*.c", "*.h")


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    tree = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else here
    formatter = shutil.which("clang-format")
    if formatter is None:
        print("format_test: clang-format isn't installed; `make deps` brings it")
        return 1
    listed = subprocess.run(["git", "-C", str(tree), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--",
                             *KINDS], capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        print(f"format_test: git can't list the files of {tree}: {listed.stderr.strip()}")
        return 1
    files = sorted({name for name in listed.stdout.split("\0") if name and (tree / name).is_file()})
    if not files:
        print(f"format_test: {tree} has no C or C++ file")
        return 1
    checked = subprocess.run([formatter, "--dry-run", "-Werror", "--style=file", *files], cwd=tree,
                             capture_output=True, text=True, check=False)
    wrong = sorted(set(re.findall(r"^(.+?):\d+:\d+: error:", checked.stderr, re.MULTILINE)))
    for name in wrong:
        print(f"not formatted: {name}")
    if checked.returncode != 0 and not wrong:
        print(checked.stderr.strip())
    if checked.returncode != 0:
        print(f"format_test: {len(wrong)} of {len(files)} files; `make format` puts them right "
              f"(or clang-format -i FILE)")
        return 1
    print(f"format_test: {len(files)} files in order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
