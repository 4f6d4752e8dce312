"""A server and its client on one host, given the same options. Not a theme: what the themes of transfers share."""
import shlex

from row import ROOT, Process, Row

ADDRESS = "10.77.0.1"
PORT = 18515  # where these programs exchange queue pair numbers, unless -p says otherwise
TROUBLE = (r"(?i)\b(errors?|fail(s|ed|ure)?|unable|couldn't|can't|cannot|invalid|mismatch)\b",)
AS_ROOT_ONLY = {"users": (ROOT,), "remark": "as root only, to save time"}


def ends(program: str, options: str, run: tuple[str, ...] = (), port: int = PORT,
         must: tuple[str, ...] = ()) -> tuple[Process, Process]:
    command = ("{verbena}", "run", *run, "--", program, *shlex.split(options))
    return (Process(command, listens=port, must=must, must_not=TROUBLE),
            Process((*command, ADDRESS), must=must, must_not=TROUBLE))


def pair(name: str, program: str, options: str, shows: str, *, run: tuple[str, ...] = (), port: int = PORT,
         must: tuple[str, ...] = (), **more) -> Row:
    return Row(name, program, options, shows, ends(program, options, run, port, must), **more)
