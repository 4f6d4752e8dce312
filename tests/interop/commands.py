"""Command lines of a row's two programs, as each family of programs wants them."""
from machines import ADDRESSES
from rows import Row

GROUP = "239.99.1.1"


def commands(row: Row, server: str, gids: dict[str, dict[int, str]], peer: str) -> tuple[list[str], list[str]]:
    """The server's and the client's."""
    client = "host" if server == "guest" else "guest"
    address = ADDRESSES[server][row.family]
    # Programs that meet over TCP do so over IPv4: the GID says which family the RDMA packets have.
    meeting = ADDRESSES[server][4]
    words = row.options.split()

    def device(machine: str, gid_option: str) -> list[str]:
        chosen = ["-d", "rxe9"] if machine == "guest" else []
        return [*chosen, gid_option, gids[machine][row.family]]

    def both(program: str, ends: tuple[list[str], list[str]]) -> tuple[list[str], list[str]]:
        return [program, *ends[0], *words], [program, *ends[1], *words]

    if row.style == "peer":
        at_server, at_client = both(peer, (device(server, "-g"), device(client, "-g")))
        return at_server, [*at_client, meeting]
    if row.style == "pingpong":
        at_server, at_client = both(row.program, (device(server, "-g"), device(client, "-g")))
        return at_server, [*at_client, meeting]
    if row.style == "perftest":
        # -F: the clocks of an emulated machine are nobody's business.
        at_server, at_client = both(row.program, (["-F", *device(server, "-x")], ["-F", *device(client, "-x")]))
        return at_server, [*at_client, meeting]
    if row.style == "rping":
        return both("rping", (["-s", "-a", address], ["-c", "-a", address]))
    if row.style == "cm_peer":  # beside the other one; its server is rping's
        return ["rping", "-s", "-a", address], [f"{peer.removesuffix('peer')}cm_peer", address]
    if row.style == "mckey":
        return both("mckey", (["-m", GROUP, "-b", address], ["-m", GROUP, "-b", ADDRESSES[client][4], "-s"]))
    if row.style == "example":  # rdma_client and rdma_server, rdma_xclient and rdma_xserver
        at_server = [row.program.replace("client", "server"), *words]
        if row.program == "rdma_client":
            at_server += ["-s", address]
        return at_server, [row.program, "-s", address, *words]
    return both(row.program, (["-b", address], ["-s", address, "-b", ADDRESSES[client][row.family]]))
