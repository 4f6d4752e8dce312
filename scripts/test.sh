#!/usr/bin/env bash
# Builds and tests each preset named: release, debug, asan, tsan. A test that failed is run once more, alone:
# what passes then is listed as unsteady (a busy machine, or a race worth a look), what fails again fails the run.
# Of what passes only the count is shown, once a minute; the closing lines name failures, with the end of each one's output.
set -euo pipefail
cd "$(dirname "$0")/.."

summary=()
status=0

failed_tests() { cut -d: -f2- "$1/Testing/Temporary/LastTestsFailed.log" 2>/dev/null || true; }

# ctest's lines without the tests that began or passed; the last of those each minute, so that long work shows.
only_news() {
  awk -v began="$(date +%s)" '
    /^ +Start +[0-9]+: / { next }
    / Passed +[0-9.]+ sec *$/ {
      now = systime()
      if (now - told >= 60) { printf "%5d s  %s\n", now - began, $1 " tests"; fflush(); told = now }
      next
    }
    { print; fflush() }'
}

for preset in "$@"; do
  echo "== $preset"
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" | awk 'NR % 50 == 0 || !/^\[[0-9]+\/[0-9]+\]/ { print; fflush() }'
  tree=build; [[ $preset == release ]] || tree=build-$preset
  rm -f "$tree/Testing/Temporary/LastTestsFailed.log"
  started=$SECONDS
  if ctest --preset "$preset" | only_news; then
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
