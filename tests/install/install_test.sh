#!/usr/bin/env bash
# Installs into a prefix of its own; from there the command, the libraries, the agent and pkg-config must work.
set -euo pipefail
build=$1 program=$2
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$build" --prefix "$prefix" >/dev/null
flags=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs verbena)
# shellcheck disable=SC2086
gcc "$program" -o "$prefix/program" $flags
isolate=(unshare -n)
[ "$(id -u)" -eq 0 ] || isolate=(unshare -Urn)
export VERBENA_AGENT_IDLE_MS=200
unset VERBENA_AGENT VERBENA_DEVICES
output=$("${isolate[@]}" sh -c "ip link set lo up; $prefix/program; $prefix/bin/verbena run -- ibv_devices")
echo "$output"
grep -q '^verbena0 RDMA_CM_EVENT_ESTABLISHED$' <<<"$output"
grep -q 'verbena0 .*[0-9a-f]\{16\}' <<<"$output"
