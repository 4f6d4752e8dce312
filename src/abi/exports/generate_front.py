#!/usr/bin/python3
"""Makes a front library's assembler file and version map from its table of exports.

Usage: generate_front.py TABLE OUT.S OUT.map    (the table's own comment explains its columns)
"""
import re
import sys

KINDS = {"core", "errno", "null", "minus1", "zero", "void", "object"}

ARCHITECTURE = """\
#if defined(__x86_64__)
#define JUMP(target) jmp target@PLT
#elif defined(__aarch64__)
#define JUMP(target) b target
#else
#error "no front for this architecture yet: add its tail jump here"
#endif
"""


class Table:
    """The nodes with their parents, and (symbol, node, separator, target) for each export."""

    def __init__(self, path):
        self.nodes, self.sets, self.exports = {}, {}, []
        for number, line in enumerate(open(path, encoding="ascii"), 1):
            line = line.rstrip("\n")
            if not line or line.startswith("#"):
                continue
            try:
                self.add(line.split("\t"))
            except (ValueError, KeyError, AssertionError) as error:
                sys.exit(f"{path}:{number}: bad row: {line!r} ({error})")

    def add(self, fields):
        if fields[0] == "%node":
            self.nodes[fields[1]] = fields[2] if len(fields) > 2 else None
        elif fields[0] == "%set":
            self.sets[fields[1]] = fields[2:]
        else:
            symbol, where, binding, kind = fields[:4]
            assert binding in ("default", "hidden") and kind in KINDS, "unknown word"
            if kind == "core":
                target = fields[4] if len(fields) > 4 else "vb_" + symbol
            else:
                target = "object" if kind == "object" else "vb_stub_" + kind
            nodes = self.sets[where[1:]] if where.startswith("$") else [where]
            for node in nodes:
                self.export(symbol, node, binding == "default" and (node == nodes[0] or "%" in symbol), target)

    def export(self, symbol, node, default, target):
        assert node in self.nodes, f"no node {node}"
        symbol = symbol.replace("%", re.sub(r".*_", "", node))
        self.exports.append((symbol, node, "@@" if default else "@", target))


def assembler(table):
    yield "/* Made by generate_front.py: each function is one jump into libverbena-core.so. */"
    yield ARCHITECTURE
    aliases = {}  # (symbol, target) -> the exports that share one body
    for symbol, node, separator, target in table.exports:
        aliases.setdefault((symbol, target), []).append((node, separator))
    for number, ((symbol, target), places) in enumerate(aliases.items()):
        is_object = target == "object"
        yield ".section .rodata" if is_object else ".text"
        if not is_object:
            yield ".balign 16"
        labels = [(f"front_{number}_{index}", *place) for index, place in enumerate(places)]
        for label, node, separator in labels:
            yield f".globl {label}\n.type {label}, %{'object' if is_object else 'function'}\n{label}:"
        yield ".byte 0" if is_object else f"JUMP({target})"
        for label, node, separator in labels:
            yield f".size {label}, . - {label}\n.symver {label}, {symbol}{separator}{node}, remove"
    yield '.section .note.GNU-stack, "", %progbits'


def version_map(table):
    first = True
    for node, parent in table.nodes.items():
        yield f"{node} {{"
        symbols = sorted({symbol for symbol, where, _, _ in table.exports if where == node})
        if symbols:
            yield "  global:\n" + "\n".join(f"    {symbol};" for symbol in symbols)
        if first:
            yield "  local: *;"
            first = False
        yield f"}} {parent};" if parent else "};"


def main():
    table_path, assembler_path, map_path = sys.argv[1:]
    table = Table(table_path)
    for path, lines in ((assembler_path, assembler(table)), (map_path, version_map(table))):
        with open(path, "w", encoding="ascii") as out:
            out.writelines(line + "\n" for line in lines)


if __name__ == "__main__":
    main()
