"""The `verbena` command: help, devices, agent."""
import json
import re

from row import Row, one

HOLD = "{verbena} run -- {python} {snippets}/hold.py {tmp}/held & until [ -e {tmp}/held ]; do sleep 0.02; done; "


def command(name: str, options: str, shows: str, *arguments: str, **more) -> Row:
    return one(name, "verbena", options, shows, ("{verbena}", *arguments), **more)


def script(name: str, options: str, shows: str, text: str, **more) -> Row:
    return one(name, "verbena", options, shows, text, **more)


def devices_json(results) -> str:
    devices = json.loads(results[0].output)
    if [device["name"] for device in devices] != ["verbena0"]:
        return f"devices are {devices}"
    port = devices[0]["ports"][0]
    if port["state"] != "active" or port["mtu"] != 1024:
        return f"port is {port}"
    gids = [(gid["index"], gid["gid"], gid["interface"]) for gid in port["gids"]]
    if gids[:2] != [(0, "::ffff:10.77.0.1", "veth0"), (1, "fd77::1", "veth0")]:
        return f"GIDs are {gids}"
    return ""


def status_json(results) -> str:
    status = json.loads(results[0].output)
    wrong = [key for key in ("pid", "generation", "slots", "counters", "log", "tree") if key not in status]
    return f"lacks {wrong}" if wrong else ""


def width(results) -> str:
    longest = max(results[0].output.splitlines(), key=len)
    return "" if len(longest) <= 160 else f"a line of {len(longest)} characters: {longest}"


HELP = [
    command("help", "--help", "the subcommands and an example", "--help", check=width,
            must=(r"verbena run -- ibv_devinfo", r"^ +run ", r"^ +devices ", r"^ +agent ")),
    command("help-run", "run --help", "options, with examples", "run", "--help", check=width,
            must=(r"verbena run --device-name mlx5_0 -- ", r"verbena run --config ", r"--device ", r"\[\[device\]\]")),
    command("help-devices", "devices --help", "options", "devices", "--help", check=width, must=("--json", "--config")),
    command("help-agent", "agent --help", "subcommands", "agent", "--help", check=width, must=("status", "stop")),
    command("version", "--version", "the version", "--version", must=(r"\Averbena \d+\.\d+\.\d+\n\Z",)),
    command("no-subcommand", "", "what is missing", status=2, must=(r"--help",)),
    command("unknown-subcommand", "nonsense", "the word that isn't understood", "nonsense", status=2,
            must=("nonsense",)),
]

DEVICES = [
    command("devices", "devices", "names, ports, addresses", "devices",
            must=(r"^verbena0 +node [0-9a-f:]{19}$", r"^ +port 1 +active +MTU 1024",
                  r"GID +0 +RoCE v2 +::ffff:10\.77\.0\.1")),
    command("devices-json", "devices --json", "the same for programs", "devices", "--json", check=devices_json),
    command("devices-two", "devices --device a=veth0 --device b=lo", "what would be seen with options", "devices",
            "--device", "a=veth0", "--device", "b=lo", must=(r"^a  node", r"^b  node")),
    command("devices-config", "devices --config devices.toml", "or from a file",
            "devices", "--config", "{tmp}/devices.toml",
            files={"devices.toml": '[[device]]\nname = "mlx5_0"\nports = ["veth0", "veth1"]\n'},
            must=(r"^mlx5_0  node", r"^ +port 1 ", r"^ +port 2 ")),
    script("devices-agree", "devices --json; run -- ibv_devices", "the command and programs see the same GUID",
           "{verbena} devices --json && {verbena} run -- ibv_devices", needs=("ibv_devices",),
           check=lambda results: guids_agree(results[0].output)),
]


def guids_agree(output: str) -> str:
    ours = re.search(r'"node_guid": "([0-9a-f:]+)"', output)[1].replace(":", "")
    theirs = re.search(r"verbena0\s+([0-9a-f]{16})", output)[1]
    return "" if ours == theirs else f"{ours} and {theirs}"


AGENT = [
    command("agent-none", "agent status", "no agent: a sentence, status 3", "agent", "status", status=3,
            must=(r"\Ano host agent runs; ",)),
    command("agent-none-json", "agent status --json", "no agent: null, status 3", "agent", "status", "--json", status=3,
            must=(r"\Anull\n\Z",)),
    command("agent-stop-none", "agent stop", "nothing to stop: a sentence, status 0", "agent", "stop",
            must=(r"\Ano host agent runs\n\Z",)),
    script("agent-status", "agent status", "who is attached", HOLD + "{verbena} agent status; kill $!; wait",
           must=(r"^agent +pid \d+, generation 1$", r"^port 4791 +ours$", r"^slots +1 of \d+ in use$",
                 r"^ +\d+ +active +pid \d+ +uid \d+$")),
    script("agent-status-json", "agent status --json", "the same for programs",
           "{verbena} devices >/dev/null; {verbena} agent status --json", check=status_json),
    script("agent-stop", "agent stop", "ends an idle agent",
           "{verbena} devices >/dev/null; {verbena} agent stop && {verbena} agent status", status=3,
           must=("no host agent runs",)),
    script("agent-stop-refused", "agent stop", "refused while one program is attached, and says so",
           HOLD + "{verbena} agent stop; echo status $?; {verbena} agent status; kill $!; wait",
           must=(r"^verbena: (1|one) process uses this host agent \(pid \d+\); .*--force", r"^status 1$", r"^slots +1 of")),
    script("agent-stop-force", "agent stop --force", "ends it all the same; the attached program gets another one",
           HOLD + "{verbena} agent stop --force; echo status $?; sleep 1.5; {verbena} agent status; kill $!; wait",
           must=(r"^status 0$", r"^agent +pid \d+, generation 2$", r"^slots +1 of")),
    script("agent-leaves", "agent status", "leaves by itself after its last client, and leaves no file behind",
           "tree=$({verbena} run -- sh -c 'echo $VERBENA_VIEW'); [ -n \"$tree\" ] && ls -d $tree;"
           " sleep 2; {verbena} agent status; ls -d $tree $(dirname $tree)", status=2,
           must=("no host agent runs", r"(?s)cannot access.*cannot access")),
    script("agent-stays", "agent status", "stays while a program runs that doesn't attach",
           "{verbena} run -- sleep 60 & sleep 1.5; {verbena} agent status; kill $!; wait", must=(r"^agent +pid",)),
    script("agent-killed", "run -- ibv_devices", "an agent killed with SIGKILL is replaced; nothing is in the way",
           "{verbena} devices >/dev/null; kill -KILL $({verbena} agent status --json |"
           " sed -n 's/.*\"pid\": \\([0-9]*\\),.*/\\1/p' | head -1); sleep 0.1; {verbena} run -- ibv_devices",
           needs=("ibv_devices",), must=(r"^ +verbena0 +\t",)),
]

ROWS = HELP + DEVICES + AGENT
