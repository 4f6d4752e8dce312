"""Whether what a row's processes did is what the row asks for."""
import re

from row import Result, Row

# Signs of a drop-in library that doesn't fit, or of a sanitizer's finding; wrong in every row.
NEVER = (
    r"^\S+: symbol lookup error",  # LD_DEBUG shows failed dlsym calls too, indented: those are the program's business
    r"undefined symbol: (ibv|rdma|verbs)_",
    r"error while loading shared libraries",
    r"cannot be preloaded",
    r"version `\w+' not found",
    r"ERROR: \w+Sanitizer",
    r"runtime error:",
)


def judge(row: Row, results: list[Result], paths: dict[str, str]) -> str:
    """Returns what is wrong, in a sentence; empty if all is well."""
    for process, result in zip(row.processes, results):
        name = process.command[0] if len(row.processes) == 1 else f"process {row.processes.index(process) + 1}"
        wrong = judge_process(process, result, paths)
        if wrong:
            return f"{fill(name, paths)}: {wrong}"
    return check(row, results) if row.check else ""


def check(row: Row, results: list[Result]) -> str:
    try:
        return row.check(results)
    except (ValueError, LookupError, TypeError) as error:
        return f"its output isn't what it should be: {error}"


def judge_process(process, result: Result, paths: dict[str, str]) -> str:
    if result.status is None:
        return "did not end in time"
    if result.status != process.status:
        return f"exit status {result.status}, expected {process.status}"
    for pattern in process.must:
        if not re.search(fill(pattern, paths, re.escape), result.output, re.MULTILINE):
            return f"output lacks /{pattern}/"
    for pattern in NEVER + process.must_not:
        if re.search(fill(pattern, paths, re.escape), result.output, re.MULTILINE):
            return f"output has /{pattern}/"
    return ""


# Of an AddressSanitizer build, about the small stacks on which it starts the host agent.
CHATTER = re.compile(r"^==\d+==WARNING: ASan is ignoring requested __asan_handle_no_return.*\n"
                     r"False positive error reports may follow\nFor details see \S+\n", re.MULTILINE)


def without_chatter(output: str) -> str:
    return CHATTER.sub("", output)


def fill(text: str, paths: dict[str, str], change=lambda value: value) -> str:
    """Puts the paths in for {verbena}, {lib} and so on; other braces stay."""
    for name, path in paths.items():
        text = text.replace("{" + name + "}", change(path))
    return text
