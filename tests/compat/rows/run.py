"""`verbena run` itself: the program is its own, in all but the libraries and devices it finds."""
from row import Process, Row, one

SHOW = "import sys; print(sys.argv[1:])"


def run(name: str, options: str, shows: str, command, **more) -> Row:
    return one(name, "verbena", options, shows, command, **more)


def snippet(name: str, options: str, shows: str, what: str, **more) -> Row:
    """A script that starts `verbena run` itself and looks on."""
    return run(name, options, shows, ("{python}", "{snippets}/run_behaviour.py", what, "{verbena}"), must=(r"^ok$",),
               **more)


STATUS = [
    run("status-0", "run -- true", "exit status 0", ("{verbena}", "run", "--", "true")),
    run("status-7", "run -- sh -c 'exit 7'", "the program's exit status",
        ("{verbena}", "run", "--", "sh", "-c", "exit 7"), status=7),
    run("status-126", "run -- /etc/passwd", "a file that can't be run: 126 and a sentence",
        ("{verbena}", "run", "--", "/etc/passwd"), status=126, must=(r"^verbena: /etc/passwd: Permission denied$",)),
    run("status-127", "run -- nosuch", "a program that isn't there: 127 and a sentence",
        ("{verbena}", "run", "--", "nosuch"), status=127, must=(r"^verbena: nosuch: No such file or directory$",)),
    run("died", "run -- sh -c 'kill -KILL $$'", "death by signal is passed on",
        ("{verbena}", "run", "--", "sh", "-c", "kill -KILL $$"), status=-9),
    run("died-shell", "run -- sh -c 'kill -ABRT $$'", "a shell sees 128 + signal",
        "{verbena} run -- sh -c 'kill -ABRT $$'; echo status $?", must=(r"^status 134$",)),
]

SIGNALS = [
    snippet("sigterm", "run -- sleep 60", "SIGTERM ends the program: same process id", "sigterm"),
    snippet("sigint", "run -- PROGRAM with a handler", "SIGINT reaches the program's own handler", "sigint"),
    snippet("sigtstp", "run -- sleep 60", "job control: stopped by SIGTSTP, goes on with SIGCONT", "sigtstp"),
    snippet("ignored", "run -- PROGRAM", "ignored and blocked signals stay as they were", "ignored"),
    snippet("descriptors", "run -- PROGRAM", "no descriptor of ours is left open in the program", "descriptors"),
    snippet("limits", "run -- PROGRAM", "limits, umask, working directory stay as they were", "limits"),
    snippet("environment", "run -- env", "no variable changes but LD_LIBRARY_PATH, LD_PRELOAD and VERBENA_*",
            "environment"),
    snippet("own-lists", "run -- env", "the user's own LD_LIBRARY_PATH and LD_PRELOAD stay, behind ours", "own-lists"),
]

STREAMS = [
    run("stdin", "run -- cat", "standard input and output", ("{verbena}", "run", "--", "cat"),
        input="one\ntwo\n", must=(r"\Aone\ntwo\n\Z",)),
    run("stderr", "run -- sh -c 'echo x >&2'", "standard error, with nothing of ours in it",
        "{verbena} run -- sh -c 'echo out; echo err >&2' 2>{tmp}/err; cat {tmp}/err", must=(r"\Aout\nerr\n\Z",)),
    run("pipe", "run -- yes | head -1", "SIGPIPE ends the program quietly", "{verbena} run -- yes | head -1",
        must=(r"\Ay\n\Z",)),
]

ARGUMENTS = [
    run("arguments", "run -- PROGRAM 'a b' '' '*'", "arguments with spaces, empty ones, patterns",
        ("{verbena}", "run", "--", "{python}", "-c", SHOW, "a b", "", "*", "x=y", "-", "'q'", '"q"', "a\\b", "%", ";"),
        must=(r"""^\['a b', '', '\*', 'x=y', '-', "'q'", '"q"', 'a\\\\b', '%', ';'\]$""",)),
    run("brackets", "run -- PROGRAM '[a,b]' '[]' '[::1]' '{}'", "arguments with brackets and braces",
        ("{verbena}", "run", "--", "{python}", "-c", SHOW, "[a,b]", "[]", "[::1]", "{}", "[x"),
        must=(r"^\['\[a,b\]', '\[\]', '\[::1\]', '\{\}', '\[x'\]$",)),
    run("no-dashes", "run ibv_devinfo -v", "`--` may be left out; the program's options are its own",
        ("{verbena}", "run", "ibv_devinfo", "-v"), needs=("ibv_devinfo",), must=(r"max_qp_wr:",)),
    run("own-options", "run PROGRAM --help --device x --config y -- z", "even those that `verbena run` has, and `--`",
        ("{verbena}", "run", "{python}", "-c", SHOW, "--help", "--device", "x", "--config", "y", "--explain", "--",
         "z"),
        must=(r"^\['--help', '--device', 'x', '--config', 'y', '--explain', '--', 'z'\]$",)),
    run("path", "run -- ./PROGRAM", "a script by relative path", "printf '#!/bin/sh\\necho I am $0\\n' >{tmp}/script;"
        " chmod +x {tmp}/script; cd {tmp}; {verbena} run -- ./script", must=(r"^I am \./script$",)),
]

CHILDREN = [
    run("children", "run -- sh -c '…'", "children and their children find the device, in files and by library",
        ("{verbena}", "run", "--", "sh", "-c", "sh -c 'ibv_devices; ls /sys/class/infiniband; ls /dev/infiniband'"),
        needs=("ibv_devices",), must=(r"^ +verbena0 +\t", r"^verbena0$", r"^uverbs0$")),
    run("cleared", "run -- env -i ibv_devices", "a cleared environment is the program's choice: the system's library",
        "{verbena} run -- env -i /usr/bin/ibv_devices; echo ended", needs=("ibv_devices",), must=(r"^ended$",),
        must_not=("verbena0",), remark="as documented: libraries are found by environment"),
    run("nested", "run -- verbena run -- ibv_devices", "inside itself",
        ("{verbena}", "run", "--", "{verbena}", "run", "--", "ibv_devices"), needs=("ibv_devices",),
        must=(r"^ +verbena0 +\t",)),
    run("nested-inner", "run --device-name a -- verbena run --device-name b -- ibv_devices", "the inner options win",
        ("{verbena}", "run", "--device-name", "a", "--", "{verbena}", "run", "--device-name", "b", "--", "ibv_devices"),
        needs=("ibv_devices",), must=(r"^ +b +\t",), must_not=(r"^ +a +\t",)),
    run("nested-outer", "run --device-name a -- verbena run -- ibv_devices",
        "without inner options the outer ones hold",
        ("{verbena}", "run", "--device-name", "a", "--", "{verbena}", "run", "--", "ibv_devices"),
        needs=("ibv_devices",), must=(r"^ +a +\t",), must_not=("verbena0",)),
    Row("network", "verbena", "run -- python3 -m http.server", "ordinary networking between two hosts stays as it is",
        (Process(("{verbena}", "run", "--", "{python}", "-m", "http.server", "--bind", "10.77.0.1", "8077"),
                 listens=8077, end_with=15, status=-15),
         Process(("{verbena}", "run", "--", "{python}", "-c",
                  "import urllib.request as u; print(u.urlopen('http://10.77.0.1:8077/hello').read().decode())"),
                 host=1, must=(r"^hello, world$",))),
        hosts=2, files={"hello": "hello, world\n"}),
]

DEVICE = '[[device]]\nname = "a"\n'
ERRORS = [
    run("no-interface", "run --device x=eth9 -- ibv_devices", "an interface that isn't there: a sentence, status 1",
        ("{verbena}", "run", "--device", "x=eth9", "--", "ibv_devices"), status=1,
        must=(r"\Averbena: device 'x' wants interface 'eth9', but there are only lo, .*veth0.* here\n\Z",)),
    run("no-port", "run --device x -- ibv_devices", "a device without port: a sentence, status 1",
        ("{verbena}", "run", "--device", "x", "--", "ibv_devices"), status=1,
        must=(r"\Averbena: device 'x' names no port; write NAME=INTERFACE",)),
    run("toml-syntax", "run --config bad.toml -- ibv_devices", "TOML that isn't: the file and the line",
        ("{verbena}", "run", "--config", "{tmp}/bad.toml", "--", "ibv_devices"), status=1,
        files={"bad.toml": DEVICE + 'ports = ["lo"\nx = 1\n'}, must=(r"\Averbena: {tmp}/bad\.toml\b.*(:4\b|line 4)",)),
    run("toml-key", "run --config bad.toml -- ibv_devices", "a key that there isn't: the file, the line, the key",
        ("{verbena}", "run", "--config", "{tmp}/bad.toml", "--", "ibv_devices"), status=1,
        files={"bad.toml": DEVICE + 'prots = ["lo"]\n'},
        must=(r"\Averbena: {tmp}/bad\.toml\b.*(:3\b|line 3).*'prots'",)),
    run("toml-missing", "run --config nosuch.toml -- ibv_devices", "a file that isn't there: its name",
        ("{verbena}", "run", "--config", "{tmp}/nosuch.toml", "--", "ibv_devices"), status=2, must=(r"nosuch\.toml",)),
    run("no-program", "run", "no program: what is missing", ("{verbena}", "run"), status=2,
        must=("which program",)),
    run("no-option", "run --nonsense true", "an option that there isn't: its name",
        ("{verbena}", "run", "--nonsense", "true"), status=2, must=("--nonsense",)),
]

ROWS = STATUS + SIGNALS + STREAMS + ARGUMENTS + CHILDREN + ERRORS
