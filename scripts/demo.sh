#!/usr/bin/env bash
# A short tour of what works so far; exit status 0 only if all of it did. In a network namespace of its own where
# that is allowed, so that it shows the same on every machine and leaves nothing behind.
set -uo pipefail
self=$(readlink -f "$0")
build=${VERBENA_BUILD:-$(dirname "$(dirname "$self")")/build}
PATH="$build/bin:$PATH:/usr/sbin:/sbin"
bold='' plain=''
if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; fi

command -v verbena >/dev/null || { echo "demo: $build/bin/verbena isn't there; run 'make build' first" >&2; exit 1; }

prepare_network() {
  ip link set lo up
  ip link add veth0 type veth peer name veth1
  ip addr add 10.77.0.1/24 dev veth0
  ip link set veth0 addrgenmode none up
  ip link set veth1 addrgenmode none up
}

# Starts itself again in a fresh namespace: as root as it is; else with the rights to prepare that namespace, which
# are dropped before the tour begins.
case ${1:-} in
  '')
    if [ "$(id -u)" -eq 0 ]; then
      namespace=(unshare -n)
    else
      namespace=(unshare -U -n --map-current-user --keep-caps)
    fi
    "${namespace[@]}" true 2>/dev/null && exec "${namespace[@]}" "$self" prepare
    place="this host's network (no namespace could be made)"
    ;;
  prepare)
    prepare_network || exit 1
    exec setpriv --inh-caps=-all --ambient-caps=-all "$self" tour
    ;;
  tour)
    place='a network namespace of its own'
    ;;
  *)
    echo "usage: $0" >&2
    exit 2
    ;;
esac
export VERBENA_AGENT_IDLE_MS=1000

failed=0
# show 'EXPLANATION' COMMAND...: prints both, then what the command prints.
show() {
  local explanation=$1
  shift
  printf '\n%s# %s%s\n$ %s\n' "$bold" "$explanation" "$plain" "$(shown "$@")"
  "$@" 2>&1 | sed '/^$/d; s/^/  /' || { failed=$((failed + 1)); echo "  ** failed"; }
}

# The command as one would type it.
shown() {
  local word line=''
  for word in "$@"; do
    case $word in
      *[!A-Za-z0-9_./=,:-]*) line+=" '$word'" ;;
      *) line+=" $word" ;;
    esac
  done
  echo "${line# }"
}

# show_pair 'EXPLANATION' COMMAND...: the command as a server, then once more as its client, whose words are shown.
show_pair() {
  local explanation=$1 server tries
  shift
  verbena run -- "$@" >/dev/null 2>&1 &
  server=$!
  for tries in $(seq 50); do
    ss -Hltn 2>/dev/null | grep -q ':1851[0-9]' && break
    sleep 0.1
  done
  show "$explanation" verbena run -- "$@" 127.0.0.1
  wait "$server" || { failed=$((failed + 1)); echo "  ** the server failed"; }
}

two_ports() {
  local links
  links=$(ip -o link show up | sed -n 's/^[0-9]*: \([^:@]*\)[:@].*/\1/p' | grep -vx lo | sort | head -2 | paste -sd,)
  case $links in
    *,*) echo "$links" ;;
    '') echo lo ;;
    *) echo "$links,lo" ;;
  esac
}

echo "Verbena: RDMA without hardware, kernel module or root. This is $(id -un 2>/dev/null || id -u), in $place."
show "the device that programs see, and its addresses" verbena devices
show "Debian's ibv_devinfo, unmodified" verbena run -- ibv_devinfo
show "and from Python" verbena run -- /usr/bin/python3 -c \
  'import pyverbs.device as d; c = d.Context(name="verbena0"); print(c.query_device().max_qp, "QPs", c.query_gid(1, 0))'
ports=$(two_ports)
show "a device called mlx5_0 with two ports; a shell, and ibstat, which reads files under /sys, find it too" \
  verbena run --device "mlx5_0=$ports" -- sh -c 'ls /sys/class/infiniband/mlx5_0/ports; ibstat -s'
show_pair "two processes, RC queue pairs: ibv_rc_pingpong" ibv_rc_pingpong -g 0 -n 10000
show_pair "latency of an 8 byte SEND" ib_send_lat -F -s 8 -n 10000
show_pair "bandwidth of RDMA WRITE" ib_write_bw -F -n 2000
show_pair "datagrams, with the GRH in front: ibv_ud_pingpong" ibv_ud_pingpong -g 0 -n 1000
verbena run -- rping -s -C 3 >/dev/null 2>&1 &
connects=$!
sleep 0.5
show "connections by RDMA CM: rping" verbena run -- rping -c -a 127.0.0.1 -C 3 -v
wait "$connects" || { failed=$((failed + 1)); echo "  ** the server failed"; }
show "all of this is served by one small process, which came and will go by itself" verbena agent status

echo
if [ "$failed" -ne 0 ]; then
  echo "$failed of these failed; please report it with the output above."
  exit 1
fi
echo "${bold}What works:${plain} RC, UC, UD, XRC, multicast and RDMA CM, on one host and between hosts; the list of programs is docs/COMPATIBILITY.md."
echo "${bold}What comes next:${plain} rsockets, the C++ API."
