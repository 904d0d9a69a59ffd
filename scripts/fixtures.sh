#!/usr/bin/env bash
# usage: scripts/fixtures.sh [TIMES] [FILTER]
#
# Runs every fixture in its first link order TIMES times in a row (default 10), alone and one at a time, and prints how
# often each gave the right answer. Unlike scripts/check.sh it gives an inconclusive one no second try.
# FILTER: another part of the names (order-2, masked/).
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
-h | --help)
    sed -n '2,6s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
times=${1:-10} filter=${2:-order-1}
cargo test --release --quiet --test fixtures --no-run
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for ((i = 1; i <= times; i++)); do
    echo "pass $i of $times" >&2
    STRADDLE_FIXTURES_ONCE=1 cargo test --release --quiet --test fixtures -- --format pretty "$filter" >>"$log" 2>&1 || true
done
sed 's/^/  /' "$log" | grep -E 'code |verdict ' >&2 || true
awk '/^test .*\/order-/ { name = $2; runs[name]++ }
     /^ok$| ok$/ { if (name != "") { good[name]++; name = "" } }
     END { bad = 0
           for (n in runs) { printf "%-28s %d of %d\n", n, good[n], runs[n]; bad += runs[n] - good[n] }
           exit bad > 0 }' "$log"
