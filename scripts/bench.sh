#!/usr/bin/env bash
# Speed and memory as ratios against real peers, each pair in one run on one machine.
set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/bench.sh scan [IMAGE]
       scripts/bench.sh heat [IMAGE]
       scripts/bench.sh profile [MEGABYTES]
       scripts/bench.sh diff [BASE PATCHED]
       scripts/bench.sh image [IMAGE]
       scripts/bench.sh variants [OBJECTS]
       scripts/bench.sh measure

scan      `straddle scan` beside `nm -S` and `readelf -SWs`, on IMAGE (default: the vmlinux that scripts/kernels.sh
          fetched): wall time and peak memory, the best of five.
heat      decoding all code of IMAGE (`straddle scan --types none`, which does little else) beside `objdump -d`; and, where
          the linker kept relocations of code, how many of the references that they tell instructions alone tell too.
profile   laying a perf.data of MEGABYTES (default 1000; written into target/bench) over a program beside `perf script`, which
          only prints it.
diff      `straddle diff` of two images (default: the last two that scripts/kernels.sh fetched) beside `codiff` and the kernel's
          `scripts/bloat-o-meter` (BLOAT=FILE says where it is), and beside one scan: commands take turns, the best of
          three counts; of codiff, which takes gigabytes, one.
image     each tier of types on a kernel with debug information, beside the peer that reads as much: names and nm, BTF and
          pahole, DWARF and pahole, with one thread and with two. Commands take turns, and the best of three counts.
variants  what patching and proving add to the link that they serve: a C++ program of OBJECTS (default 500) objects, with
          bfd and lld; and the disk that 64 variants need beside their own size.
measure   our own cost of a run, from spawn to stored sample, beside `hyperfine -N`, on a program that does nothing.
Nothing else should run on the machine. The tables go into docs/performance.md by hand, with the machine's name.
END
}

cd "$(dirname "$0")/.."
straddle=$(realpath "${STRADDLE:-target/release/straddle}")
work=$PWD/target/bench
mkdir -p "$work"

# COMMAND…: "SECONDS MIB", the best of five.
best() {
    local i
    for i in 1 2 3 4 5; do
        /usr/bin/time -f '%e %M' -o "$work/time" "$@" >/dev/null 2>&1
        cat "$work/time"
    done | sort -n | head -n 1 | awk '{ printf "%.2f %.0f\n", $1, $2 / 1024 }'
}

scan() {
    local image=${1:-$(ls kernels/*/vmlinux 2>/dev/null | tail -n 1)}
    [ -f "$image" ] || { echo "bench.sh: no image; scripts/kernels.sh fetches one" >&2; exit 2; }
    local ours other
    ours=$(best "$straddle" scan "$image")
    echo "| command | seconds | MiB | time against straddle |"
    echo "|---|--:|--:|--:|"
    echo "| straddle scan | ${ours/ / | } | 1 |"
    for other in "nm -S" "readelf -SWs"; do
        best $other "$image" | awk -v name="$other" -v ours="${ours% *}" '{ printf "| %s | %s | %s | %.1f |\n", name, $1, $2, $1 / ours }'
    done
}

heat() {
    local image=${1:-$(ls kernels/*/vmlinux 2>/dev/null | tail -n 1)}
    [ -f "$image" ] || { echo "bench.sh: no image; scripts/kernels.sh fetches one" >&2; exit 2; }
    local ours
    ours=$(best "$straddle" scan --types none "$image")
    echo "| command | seconds | MiB | time against straddle |"
    echo "|---|--:|--:|--:|"
    echo "| straddle scan --types none | ${ours/ / | } | 1 |"
    best objdump -d "$image" | awk -v ours="${ours% *}" '{ printf "| objdump -d | %s | %s | %.1f |\n\n", $1, $2, $1 / ours }'
    ! readelf -SW "$image" | grep -q '[.]rela[.]text' || STRADDLE_HEAT_IMAGE=$(realpath "$image") \
        cargo test --release --quiet --test integration -- --nocapture of_a_named_image | sed -n '/agree/,/^}/p'
}

profile() {
    command -v perf >/dev/null || { echo "bench.sh: perf is missing (apt-get install linux-perf)" >&2; exit 4; }
    local at=$work/profile size ours
    mkdir -p "$at"
    STRADDLE_BIG_PROFILE=$at STRADDLE_BIG_MB=${1:-1000} cargo test --release --quiet --test integration -- where_it_is_asked_for >/dev/null
    size=$(stat -c %s "$at/big.data")
    ours=$(best "$straddle" scan "$at/image" --profile "$at/big.data")
    /usr/bin/time -f '%e %M' -o "$work/time" perf script -i "$at/big.data" >/dev/null 2>&1
    { echo "straddle scan --profile|${ours/ /|}"; awk '{ printf "perf script|%.2f|%.0f\n", $1, $2 / 1024 }' "$work/time"; } |
        awk -F'|' -v size="$size" 'BEGIN { print "| command | seconds | MB/s | MiB |\n|---|--:|--:|--:|" }
            { printf "| %s | %s | %.0f | %s |\n", $1, $2, size / 1e6 / $2, $3 }'
}

diff() {
    local base patched bloat=${BLOAT:-$(ls /usr/src/linux-*/scripts/bloat-o-meter 2>/dev/null | tail -n 1)}
    base=${1:-$(ls kernels/*/vmlinux 2>/dev/null | tail -n 2 | head -n 1)}
    patched=${2:-$(ls kernels/*/vmlinux 2>/dev/null | tail -n 1)}
    [ -f "$base" ] && [ "$base" != "$patched" ] || { echo "bench.sh: two images are needed; scripts/kernels.sh fetches them" >&2; exit 2; }
    command -v codiff >/dev/null || { echo "bench.sh: codiff is missing (apt-get install dwarves)" >&2; exit 4; }
    [ -f "$bloat" ] || { echo "bench.sh: BLOAT=FILE must name the kernel's scripts/bloat-o-meter (apt-get download linux-source-6.1)" >&2; exit 4; }
    rm -f "$work/turns"
    local two="$base $patched" ours="$straddle diff"
    {
        turns 3 "bloat-o-meter" "python3 $bloat $two" "names: straddle diff --names-only" "$ours --names-only $two"
        turns 1 "codiff" "codiff $two"
        turns 3 "symbols and code: straddle diff --types none" "$ours --types none $two" \
            "one scan, types from DWARF" "$straddle scan --types dwarf $base" "types from DWARF: straddle diff" "$ours --types dwarf $two"
        turns 3 "types from BTF: straddle diff" "$ours $two"
    } | awk -F'|' 'BEGIN { print "| command | seconds | MiB | of the time of the row above |\n|---|--:|--:|--:|" }
        { printf "| %s | %s | %s | %s |\n", $1, $2, $3, NR == 1 || NR == 3 || NR == 5 ? "" : sprintf("%.2f", $2 / last); last = $2 }'
}

# Rows of NAME and COMMAND that take turns, so that a busy moment meets all of them: "NAME | SECONDS | MIB", in their order.
turns() { # ROUNDS NAME COMMAND [NAME COMMAND]…
    local rounds=$1 round i
    shift
    local all=("$@")
    for ((round = 0; round < rounds; round++)); do
        for ((i = 0; i < ${#all[@]}; i += 2)); do
            # Words are split on purpose: no path here has a blank.
            # shellcheck disable=SC2086
            /usr/bin/time -f "$i %e %M" -a -o "$work/turns" ${all[i + 1]} >/dev/null 2>&1
        done
    done
    for ((i = 0; i < ${#all[@]}; i += 2)); do
        awk -v i="$i" '$1 == i && (best == "" || $2 < best) { best = $2; mib = $3 / 1024 } END { printf "%.2f %.0f\n", best, mib }' "$work/turns" |
            while read -r seconds mib; do echo "${all[i]}|$seconds|$mib"; done
    done
    rm -f "$work/turns"
}

image() {
    local image=${1:-$(ls kernels/*/vmlinux 2>/dev/null | tail -n 1)}
    [ -f "$image" ] || { echo "bench.sh: no image; scripts/kernels.sh fetches one" >&2; exit 2; }
    command -v pahole >/dev/null || { echo "bench.sh: pahole is missing (apt-get install dwarves)" >&2; exit 4; }
    rm -f "$work/turns"
    local scan="$straddle scan --heat none"
    turns 3 \
        "names: straddle scan --heat none --types none" "$scan --types none $image" \
        "nm -S" "nm -S $image" \
        "BTF: straddle scan --heat none --types btf" "$scan --types btf $image" \
        "pahole -F btf --sizes" "pahole -F btf --sizes $image" \
        "DWARF: straddle scan --heat none -j 1" "$scan --types dwarf -j 1 $image" \
        "pahole -F dwarf --sizes -j1" "pahole -F dwarf --sizes -j1 $image" \
        "DWARF: straddle scan --heat none -j 2" "$scan --types dwarf -j 2 $image" \
        "pahole -F dwarf --sizes -j2" "pahole -F dwarf --sizes -j2 $image" |
        awk -F'|' 'BEGIN { print "| command | seconds | MiB | time against straddle |\n|---|--:|--:|--:|" }
            NR % 2 { ours = $2; against = "1" } !(NR % 2) { against = sprintf("%.1f", $2 / ours) }
            { printf "| %s | %s | %s | %s |\n", $1, $2, $3, against }'
}

# A C++ program of N objects with templates, exceptions, static data and inline functions that every object repeats.
program() { # FOLDER N
    [ -f "$1/Makefile" ] && return
    mkdir -p "$1"
    local i
    for ((i = 0; i < $2; i++)); do
        cat >"$1/u$i.cc" <<END
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
static long counter_$i = $i, spare_$i[$((i % 7 + 1))];
const char *const name_$i = "unit $i";
std::map<std::string, std::vector<long>> table_$i;
long step_$i(long n) {
    auto &row = table_$i[name_$i + std::to_string(n % 3)];
    row.push_back(n + counter_$i++ + spare_$i[0]);
    if (n < 0) throw std::out_of_range(name_$i);
    return row.back();
}
END
    done
    {
        for ((i = 0; i < $2; i++)); do echo "long step_$i(long);"; done
        echo '#include <cstdio>'
        echo 'int main() { long sum = 0;'
        for ((i = 0; i < $2; i++)); do echo "sum += step_$i($i);"; done
        echo 'std::printf("%ld\n", sum); return 0; }'
    } >"$1/main.cc"
    cat >"$1/Makefile" <<'END'
objects := $(patsubst %.cc,%.o,$(wildcard *.cc))
program: $(objects)
	$(CXX) $(LDFLAGS) -o $@ $(objects)
%.o: %.cc
	$(CXX) -O1 -g -c $< -o $@
END
    make -s -j"$(nproc)" -C "$1" program
}

variants() {
    local at=$work/program-${1:-500} linker
    program "$at" "${1:-500}"
    echo "| linker | a link, s | patching, reading and proving, s | against the link |"
    echo "|---|--:|--:|--:|"
    for linker in bfd lld; do
        rm -rf "$at/program" "$at/.straddle" "$at/out"
        "$straddle" capture -q --dir "$at" -- make -s program "LDFLAGS=-fuse-ld=$linker" >/dev/null
        "$straddle" variants "$at/.straddle/capture" --kind random -n 16 -j 1 -o "$at/out" 2>&1 >/dev/null |
            awk -v linker="$linker" '/in the linker/ { printf "| %s | %.2f | %.2f | %+.0f %% |\n", linker, $1 / 16, $6 / 16, 100 * $6 / $1 }'
    done
    rm -rf "$at/out"
    "$straddle" variants -q "$at/.straddle/capture" --kind random -n 64 -o "$at/out" >/dev/null
    local all own
    all=$(du -s --block-size=1 "$at/out" | cut -f1)
    own=$(find "$at/out" -name 'program-*' -type f -printf '%b\n' | awk '{ s += $1 * 512 } END { print s }')
    awk -v all="$all" -v own="$own" 'BEGIN { printf "\n64 variants: %.1f MB of binaries, %+.1f %% beside them\n", own / 1e6, 100 * (all - own) / own }'
}

measure() {
    command -v hyperfine >/dev/null || { echo "bench.sh: hyperfine is missing (apt-get install hyperfine)" >&2; exit 4; }
    local at=$work/nothing cache=$work/cache runs ours theirs
    rm -rf "$at" "$cache"
    mkdir -p "$at/base" "$at/patched"
    echo 'int spare = 1; int main(void) { return 0; }' >"$at/base/main.c"
    echo 'int spare = 2; int main(void) { return 0; }' >"$at/patched/main.c"
    (cd "$at/base" && gcc -O2 main.c -o nothing)
    XDG_CACHE_HOME=$cache "$straddle" triage -q --base "$at/base" --patched "$at/patched" --build 'gcc -O2 main.c -o nothing' \
        --budget 20s -- '{bin}' >/dev/null || true
    # From one start to the next: a run, and all that is ours around it.
    ours=$(sed -n 's/.*"start_ns":\([0-9]*\).*/\1/p' "$cache"/straddle/*/*.record | sort -n |
        awk 'NR > 1 { print $1 - last } { last = $1 }' | sort -n | awk '{ v[NR] = $1 } END { printf "%.3f", v[int((NR + 1) / 2)] / 1e6 }')
    runs=5000
    /usr/bin/time -o "$work/time" -f %e hyperfine -N --warmup 1 --runs $runs "$at/base/nothing" >/dev/null 2>&1
    theirs=$(awk -v n=$runs '{ printf "%.3f", 1000 * $1 / n }' "$work/time")
    echo "| a run of a program that does nothing | ms |"
    echo "|---|--:|"
    echo "| straddle, from start to start | $ours |"
    echo "| hyperfine -N | $theirs |"
    awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "\nratio %.2f\n", a / b }'
}

case ${1:-} in
scan | heat | profile | diff | image | variants | measure) "$@" ;;
-h | --help) usage ;;
*) usage >&2; exit 2 ;;
esac
