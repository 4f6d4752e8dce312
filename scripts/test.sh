#!/usr/bin/env bash
# Builds and tests each preset named: release, debug, asan, tsan. Ends with ctest's closing lines.
set -euo pipefail
cd "$(dirname "$0")/.."
status=0
for preset in "$@"; do
  echo "== $preset"
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset"
  ctest --preset "$preset" || status=1
done
exit $status
