#!/usr/bin/env bash
# How often straddle is wrong, by simulation and on real runs. Writes its tables into docs/calibration.md.
set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/calibrate.sh sim
       scripts/calibrate.sh real [WHAT…]

sim   2,000 simulated campaigns for each truth and noise, and what other methods say of the same worlds (about ten
      minutes on two cores).
real  triages of real programs whose truth is known, one at a time; nothing else should run on the machine. WHAT, by
      default all of it (about an hour):
        aa        Lua against Lua with 24 bytes that nothing reads, 59 times: no code effect
        spin      Lua with a loop that costs 5, 2 and 1 %, 10 times each
        fixtures  the first link order of six of fixtures/, 20 times each
      Each triage has a seed of its own. Those that stand in docs/calibration-real.tsv are not run again: a run that was
      cut goes on, and removing the file starts anew. STRADDLE names another binary of straddle.
Both write tables into docs/calibration.md and leave the rest of it.
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

# Real runs. A row of the log: what, seed, verdict, why it is inconclusive, code effect with its interval in percent, runs,
# seconds of the whole triage.
real=$PWD/programs/calibration
log=$PWD/docs/calibration-real.tsv

# WHAT SEED ARGUMENT…: one triage, unless the log has it.
once() {
    local what=$1 seed=$2 start=$SECONDS value
    shift 2
    grep -qs "^$what	$seed	" "$log" && return
    value=$("$straddle" triage -q --format json --seed "$seed" "$@") || [ -n "$value" ]
    python3 - "$what" "$seed" "$((SECONDS - start))" >>"$log" 3<<<"$value" <<'END'
import json, sys
v = json.load(open(3))
code = v["code_effect"] or {}
print(*sys.argv[1:3], v["verdict"], v["blocked_by"] or "", *(code.get(k) for k in ("percent", "low", "high")),
      v["runs"], sys.argv[3], sep="\t")
END
    tail -n 1 "$log" >&2
}

# Both versions are compiled here, and linked by triage: what is compared is what the links make of the same objects.
lua() { # FOLDER FLAGS-OF-PATCHED
    [ -d programs/lua ] || scripts/programs.sh -n 1 lua
    local at=$real/$1 version
    rm -rf "$at"
    mkdir -p "$at"
    cat >"$at/work.lua" <<'END'
local kind, clock = math.type, os.clock
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
local best = math.huge
for _ = 1, 8 do
  local sum, start = 0, clock()
  for i = 1, 200 do sum = sum + fib(10) + #kind(i) end
  best = math.min(best, clock() - start)
end
print("best " .. best * 1e6 .. " us")
END
    for version in base patched; do
        cp -r programs/lua/src "$at/$version"
        make -s -C "$at/$version" clean
    done
    sed -i 's/^static int math_type .*/&\n#ifdef SPIN\n  for (int i = 0; i < SPIN; i++) __asm__ volatile("");\n#endif/
        s/^static int math_abs /#ifdef UNREAD\nvolatile char unread[UNREAD] = {1};\n#endif\n&/' "$at"/*/lmathlib.c
    make -s -C "$at/base" linux MYCFLAGS="-ffunction-sections -fdata-sections" >/dev/null 2>&1
    make -s -C "$at/patched" linux MYCFLAGS="-ffunction-sections -fdata-sections $2" >/dev/null 2>&1
    cat >"$at/straddle.toml" <<END
[build]
base = "base"
patched = "patched"
command = "cc -o lua -Wl,-E lua.o liblua.a -lm -ldl"
link = "lua"
[run]
command = "{bin} $at/work.lua"
metric = ["stdout:best ([0-9.]+) us"]
better = "lower"
END
}

# How many turns of the loop cost 100 %: the median of 200 runs with a loop of 5,000 turns against that without.
turns() {
    lua spin-5000 -DSPIN=5000
    python3 - "$real/spin-5000" <<'END'
import statistics, subprocess, sys
def run(version):
    command = [f"{sys.argv[1]}/{version}/lua", f"{sys.argv[1]}/work.lua"]
    return float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.split()[1])
base, patched = (statistics.median(times) for times in zip(*[(run("base"), run("patched")) for _ in range(200)]))
print(round(5000 / (patched / base - 1)))
END
}

# The fixture's own words say what is right.
answer() { sed -n 's/^# expect ORDER=1: \([a-z-]*\).*/\1/p' "fixtures/$1/build.sh" | head -n 1; }
six=(both extra-work irrelevant-patch masked no-change straddled-field)

measure() { # WHAT
    local seed percent all name
    case $1 in
    aa)
        lua aa -DUNREAD=24
        for seed in {1..59}; do once aa "$seed" --budget 50s "$real/aa"; done
        ;;
    spin)
        all=$(turns)
        for percent in 5 2 1; do lua "spin-$percent" "-DSPIN=$((all * percent / 100))"; done
        for seed in {1..10}; do
            for percent in 5 2 1; do once "spin-$percent" "$seed" --budget 50s "$real/spin-$percent"; done
        done
        ;;
    fixtures)
        for seed in {1..20}; do
            for name in "${six[@]}"; do once "$name" "$seed" "fixtures/$name"; done
        done
        ;;
    *) usage >&2; exit 2 ;;
    esac
}

facts() {
    local version
    version=$("$straddle" --version)
    echo "$version on $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs, $(systemd-detect-virt --vm 2>/dev/null || echo "no hypervisor named")," \
        "Linux $(uname -r | cut -d- -f1), $(date +%Y-%m-%d), $(cc --version | head -n 1), $(ld --version | head -n 1)."
}

real_table() {
    {
        for name in "${six[@]}"; do printf '%s\t%s\n' "$name" "$(answer "$name")"; done
    } | python3 -c '
import collections, statistics, sys
right = dict(line.rstrip("\n").split("\t") for line in sys.stdin)
truth = {"aa": 0.0, "spin-5": 5.0, "spin-2": 2.0, "spin-1": 1.0}
names = {"aa": "Lua, 24 unread bytes", "spin-5": "Lua, 5 % more work", "spin-2": "Lua, 2 % more work", "spin-1": "Lua, 1 % more work (= m)"}
rows = collections.defaultdict(list)
for line in open(sys.argv[1]):
    row = line.rstrip("\n").split("\t")
    rows[row[0]].append(row)
def judge(what, verdict):
    if verdict == "inconclusive":
        return "undecided"
    if what == "aa":  # The bytes move others: luck may be real, the code is the same.
        return "wrong" if verdict in ("code", "both") else "right"
    if what == "spin-1":  # On the margin, either claim is true.
        return "right"
    if what in truth:
        return "right" if verdict in ("code", "both") else "wrong"
    return "right" if verdict == right[what] else "wrong"
print("| program | triages | right | wrong | undecided | verdicts | code interval holds the truth | runs, median | seconds, median (most) |")
print("|---|--:|--:|--:|--:|---|--:|--:|--:|")
for what in [*truth, *right]:
    if what not in rows:
        continue
    of = rows[what]
    judged = collections.Counter(judge(what, r[2]) for r in of)
    said = collections.Counter(r[2] + (f" ({r[3]})" if r[3] else "") for r in of)
    known = [r for r in of if what in truth and r[5] != "None"]
    holds = sum(float(r[5]) <= truth[what] <= float(r[6]) for r in known)
    seconds = [int(r[8]) for r in of]
    print("|", names.get(what, f"fixture {what}"), "|", len(of), "|", judged["right"], "|", judged["wrong"], "|", judged["undecided"], "|",
          ", ".join(f"{n} {w}" for w, n in said.most_common()), "|", f"{holds} of {len(known)}" if known else "–", "|",
          round(statistics.median(int(r[7]) for r in of)), "|", f"{round(statistics.median(seconds))} ({max(seconds)})", "|")
' "$log"
}

case ${1:-} in
real)
    shift
    straddle=$(realpath "${STRADDLE:-target/release/straddle}")
    mkdir -p "$real"
    [ $# -gt 0 ] || set -- aa spin fixtures
    for what in "$@"; do measure "$what"; done
    {
        echo
        facts
        echo
        real_table
    } | put real
    ;;
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
