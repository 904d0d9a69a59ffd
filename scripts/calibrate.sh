#!/usr/bin/env bash
# How often straddle is wrong, by simulation. Writes its tables into docs/calibration.md.
set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/calibrate.sh sim

sim   2,000 simulated campaigns for each truth and noise, and what other methods say of the same worlds (about ten
      minutes on two cores). Writes both tables into docs/calibration.md and leaves the rest of it.
END
}

cd "$(dirname "$0")/.."
mkdir -p docs
page=docs/calibration.md

# PART: standard input takes the place of what stands between its marks.
put() {
    local text
    text=$(cat)
    grep -q "^<!-- $1 -->$" "$page" || printf '\n<!-- %s -->\n<!-- end of %s -->\n' "$1" "$1" >>"$page"
    TEXT=$text awk -v from="<!-- $1 -->" -v to="<!-- end of $1 -->" '
        $0 == from { print; print ENVIRON["TEXT"]; skip = 1; next }
        $0 == to { skip = 0 }
        !skip' "$page" >"$page.new"
    mv "$page.new" "$page"
}

table() { # TEST: what it prints between BEGIN and END
    STRADDLE_REPETITIONS=2000 cargo test --release --quiet --lib "calibration::$1" -- --nocapture | sed -n '/^BEGIN$/,/^END$/p' | sed '1d;$d'
}

case ${1:-} in
sim)
    {
        echo
        echo "Made by \`scripts/calibrate.sh sim\`; 2,000 campaigns a row."
        echo
        table calibration_of_verdicts
    } | put simulation
    {
        echo
        echo "In how many percent of 2,000 cases each method says that the code changed (\`scripts/calibrate.sh sim\`)."
        echo
        table calibration_of_other_methods
    } | put methods
    ;;
-h | --help) usage ;;
*) usage >&2; exit 2 ;;
esac
