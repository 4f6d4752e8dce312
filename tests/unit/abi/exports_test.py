#!/usr/bin/python3
"""What the built libraries export, need and hold. Usage: exports_test.py {exports|core|fronts} LIBDIR [SANITIZE]"""
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
FRONTS = ("libibverbs", "librdmacm")
# What newer rdma-core has beyond Debian 12's list.
NEWER = re.compile(r"@(IBVERBS_1\.1[5-8]|IBVERBS_PRIVATE_(57|59|6[0-5])|RDMACM_1\.[45])$")


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *map(str, arguments)], check=True, text=True, capture_output=True).stdout


def exported(library):
    """{name@version or name@@version: type} without the version nodes' own symbols."""
    symbols = {}
    for line in readelf("--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) == 8 and fields[0].rstrip(":").isdigit() and fields[6] not in ("UND", "ABS"):
            symbols[fields[7]] = fields[3]
    return symbols


def check_exports(directory, _):
    for name in FRONTS:
        have = exported(directory / f"{name}.so.1")
        want = dict(line.split("\t") for line in (HERE / "expected" / f"{name}.txt").read_text().splitlines())
        for symbol, kind in want.items():
            yield have.get(symbol) == kind, f"{name}: {symbol} should be {kind}, is {have.get(symbol)}"
        for symbol in have.keys() - want.keys():
            yield NEWER.search(symbol), f"{name}: {symbol} is neither Debian's nor newer rdma-core's"
        parents = dict(re.findall(r"Name: (\S+)\n[^\n]*Parent 1: (\S+)", readelf("--version-info", directory / f"{name}.so.1")))
        for prefix in ("IBVERBS_1.", "RDMACM_1."):
            chain = sorted((node for node in parents if node.startswith(prefix)), key=lambda n: int(n.split(".")[1]))
            for older, newer in zip(chain, chain[1:]):
                yield parents[newer] == older, f"{newer} should inherit {older}, inherits {parents[newer]}"
        yield len(parents) > 2, f"{name}: version nodes should inherit each other"
    private = {symbol for symbol in exported(directory / "libibverbs.so.1") if "PRIVATE" in symbol}
    for number in (34, 57, *range(59, 66)):
        symbol = f"verbs_register_driver_{number}@@IBVERBS_PRIVATE_{number}"
        yield symbol in private, f"{symbol} is missing: a driver of that version can't load"


def check_core(directory, _):
    for symbol in exported(directory / "libverbena-core.so"):
        yield re.fullmatch(r"vb_\w+@@VERBENA_PRIVATE", symbol), f"the core exports {symbol}"
    dynamic = readelf("-d", directory / "libverbena-core.so")
    yield "NODELETE" in dynamic, "the core must survive dlclose"
    yield "SONAME" in dynamic and "[libverbena-core.so]" in dynamic, "the core's name"


def check_fronts(directory, sanitize):
    for name in FRONTS:
        library = directory / f"{name}.so.1"
        dynamic = readelf("-d", library)
        needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
        allowed = {"libverbena-core.so", "libc.so.6"}
        yield "libverbena-core.so" in needed, f"{name} needs the core"
        yield needed <= allowed or sanitize, f"{name} needs {needed - allowed}"
        yield f"[{name}.so.1]" in dynamic, f"{name}: SONAME"
        yield "[$ORIGIN]" in dynamic and "RUNPATH" in dynamic, f"{name}: RUNPATH should be $ORIGIN"
        for section, size in re.findall(r"\] (\.t?data|\.t?bss)\s+\S+\s+\S+\s+\S+\s+(\S+)", readelf("-S", library)):
            yield int(size, 16) <= 16, f"{name}: {section} has {int(size, 16)} bytes: state belongs in the core"
        link = directory / f"{name}.so"
        yield link.resolve() == library.resolve(), f"{link} should lead to {library}"


def main():
    check = {"exports": check_exports, "core": check_core, "fronts": check_fronts}[sys.argv[1]]
    results = list(check(pathlib.Path(sys.argv[2]), len(sys.argv) > 3 and sys.argv[3]))
    wrong = [sentence for fine, sentence in results if not fine]
    print(*wrong, sep="\n")
    print(f"{len(results)} checks, {len(wrong)} wrong")
    return bool(wrong) or not results


if __name__ == "__main__":
    sys.exit(main())
