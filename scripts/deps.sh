#!/usr/bin/env bash
# Installs what is missing of what Verbena is built and tested with (Debian 12). Does nothing when all is there.
set -euo pipefail
packages=(
  g++ cmake ninja-build clang-format python3 binutils
  libibverbs-dev librdmacm-dev libfmt-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev
  libdeflate-dev libgtest-dev libgmock-dev librapidcheck-dev zlib1g-dev
  # programs that are run unmodified
  ibverbs-utils rdmacm-utils perftest infiniband-diags ucx-utils libfabric-bin python3-pyverbs ibverbs-providers
  fio qperf dapl2-utils libdapl2 librpma-dev
  # what tests use
  iproute2 procps util-linux pkg-config strace tshark ethtool python3-scapy
  # what benchmarks use beside perftest and ucx-utils
  python3-matplotlib
)
# what only `make compat` uses
[ "${1:-}" = compat ] && packages+=(qemu-system-x86 tgt libiscsi-bin openmpi-bin libopenmpi-dev mpich libmpich-dev)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "installing: ${missing[*]}"
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "not root and no sudo: ask for these packages to be installed" >&2; exit 1; }
  sudo=(sudo)
fi
"${sudo[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends "${missing[@]}"
