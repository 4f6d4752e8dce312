#!/usr/bin/env bash
# Builds and tests each preset named: release, debug, asan, tsan. A test that failed is run once more, alone:
# what passes then is listed as unsteady (a busy machine, or a race worth a look), what fails again fails the run.
# The closing lines name both, with the end of each failure's output.
set -euo pipefail
cd "$(dirname "$0")/.."

summary=()
status=0

failed_tests() { cut -d: -f2- "$1/Testing/Temporary/LastTestsFailed.log" 2>/dev/null || true; }

for preset in "$@"; do
  echo "== $preset"
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset"
  tree=build; [[ $preset == release ]] || tree=build-$preset
  rm -f "$tree/Testing/Temporary/LastTestsFailed.log"
  started=$SECONDS
  if ctest --preset "$preset"; then
    summary+=("$preset: passed in $((SECONDS - started)) s")
    continue
  fi
  unsteady=$(failed_tests "$tree")
  echo "== $preset: once more, alone, what failed"
  again=$tree/failed-again.log
  if ctest --preset "$preset" --rerun-failed --output-on-failure -j 1 2>&1 | tee "$again"; then
    summary+=("$preset: passed in $((SECONDS - started)) s; UNSTEADY, passed when run alone: ${unsteady//$'\n'/ }")
  else
    status=1
    summary+=("$preset: FAILED: $(failed_tests "$tree" | tr '\n' ' ')" "$(tail -n 60 "$again")")
  fi
done

echo "== summary"
printf '%s\n' "${summary[@]}"
exit $status
