#!/usr/bin/env bash
# Real programs, varied: each is built, its link captured, and its own tests must pass under random variants.
set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/programs.sh [-n VARIANTS] [PROGRAM…]

Fetches each program's source by package name (Debian's source packages, crates.io) into programs/, builds it under
`straddle capture`, makes VARIANTS random variants (default 8), puts each in the program's place and runs the program's
own tests.
  lua        C, make           a script that exercises the interpreter (the package has no tests)
  zstd       C and assembly    tests/cli-tests
  memcached  C, autoconf       some of t/*.t
  snappy     C++, cmake        its unit tests: COMDAT, exceptions, an archive
  ripgrep    Rust, cargo       its integration tests
Needs gcc, g++, make, python3 and perl; memcached needs libevent-dev, snappy cmake, zlib1g-dev
and libgtest-dev. STRADDLE names another binary of straddle.
END
}

variants=8
while getopts n:h option; do
    case $option in
    n) variants=$OPTARG ;;
    h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- lua zstd memcached snappy ripgrep

cd "$(dirname "$0")/.."
straddle=$(realpath "${STRADDLE:-target/release/straddle}")
mkdir -p programs
root=$PWD/programs

# Debian's own sources of packages, with its source index kept apart from the system's: no root is needed.
apt() { # COMMAND…
    local state=$root/.apt command=$1
    shift
    mkdir -p "$state/parts" "$state/lists/partial"
    if [ -e /etc/apt/sources.list.d/debian.sources ]; then
        sed 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >"$state/parts/debian.sources"
    else
        sed 's/^deb /deb-src /' /etc/apt/sources.list >"$state/parts/debian.list"
    fi
    "$command" -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$state/parts" \
        -o Dir::State::lists="$state/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= "$@"
}

debian() { # FOLDER PACKAGE [VERSION]: unpacks the upstream source, unless it is there
    [ -d "$root/$1" ] && return
    [ -e "$root/.apt/lists/lock" ] || apt apt-get -qq update
    local work version
    work=$(mktemp -d "$root/.fetch.XXXXXX")
    # The newest first; an index may name one that the archive does not hold any more.
    for version in ${3:-$(apt apt-cache showsrc --only-source "$2" | sed -n 's/^Version: //p' | sort -rV)}; do
        (cd "$work" && apt apt-get -qq source --download-only "$2=$version" >/dev/null 2>&1) && break
    done
    mkdir "$work/tree"
    tar -xf "$work"/*.orig.tar.?z -C "$work/tree" --strip-components=1 ||
        { echo "programs.sh: the source of $2 cannot be fetched" >&2; exit 4; }
    mv "$work/tree" "$root/$1"
    rm -rf "$work"
}

crate() { # FOLDER NAME VERSION
    [ -d "$root/$1" ] && return
    local work
    work=$(mktemp -d "$root/.fetch.XXXXXX")
    mkdir "$work/src"
    : >"$work/src/lib.rs"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\n[dependencies]\n%s = "=%s"\n[workspace]\n' "$2" "$3" >"$work/Cargo.toml"
    (cd "$work" && cargo vendor --quiet vendor >/dev/null 2>&1)
    rm -f "$work/vendor/$2/.cargo-checksum.json"
    mv "$work/vendor/$2" "$root/$1"
    rm -rf "$work"
}

# FOLDER LINK [FILE]: what `build` links as LINK and leaves at FILE, and `check` tests.
vary() {
    local at=$root/$1 link=$2 place=$root/$1/${3:-$2} out=$root/$1/.straddle/variants
    rm -rf "$at/.straddle"
    "$straddle" capture -q --dir "$at" --link "$link" -- bash -c "$build" >/dev/null
    cp "$place" "$place.pristine"
    (cd "$at" && check >"$at/.straddle/check.log" 2>&1) || { echo "$1: its tests fail as built" >&2; return 1; }
    "$straddle" variants "$at/.straddle/capture" --link "$link" --kind random -n "$variants" -o "$out" >"$at/.straddle/variants.log"
    local good=0 file
    for file in "$out/${link##*/}"-*[0-9]; do
        rm -f "$place"
        cp "$file" "$place"
        if (cd "$at" && check >"$at/.straddle/check.log" 2>&1); then
            good=$((good + 1))
        else
            echo "$1: its tests fail with ${file##*/}; see $1/.straddle/check.log" >&2
        fi
    done
    mv "$place.pristine" "$place"
    printf '%-10s %d of %d variants pass its tests\n' "$1" "$good" "$variants"
    [ "$good" = "$variants" ]
}

lua() {
    debian lua lua5.4
    build='make -s -C src clean && make -s -C src linux MYCFLAGS=-g'
    check() {
        src/lua - <<'LUA'
local function fails(f, ...) local ok, e = pcall(f, ...) assert(not ok) return tostring(e) end
assert(7 // 2 == 3 and -7 // 2 == -4 and 7 % -3 == -2 and 1 << 62 > 0 and 2^53 == 9007199254740992.0)
assert(("hello"):rep(3, "-") == "hello-hello-hello" and ("%5.2f|%q"):format(math.pi, "a\n") ~= nil)
assert(("k=v, x=y"):gsub("(%w+)=(%w+)", "%2=%1") == "v=k, y=x")
local t = {}
for i = 1, 2000 do t[i] = (i * 7919) % 2003 end
table.sort(t)
for i = 2, #t do assert(t[i - 1] <= t[i]) end
local co = coroutine.wrap(function(a) for i = 1, 3 do a = coroutine.yield(a * i) end return "end" end)
assert(co(2) == 2 and co(3) == 6 and co(4) == 12 and co(0) == "end")
assert(fails(function() local x = nil; return x.y end):find("attempt to index"))
assert(fails(error, setmetatable({}, {__tostring = function() return "own" end})) == "own")
local proxy = setmetatable({}, {__index = function(_, k) return k .. "!" end, __call = function(_, x) return x + 1 end})
assert(proxy.a == "a!" and proxy(1) == 2)
assert(load("return ...")(5) == 5 and load("syntax error here") == nil)
local parts = {}
for k in pairs(string) do parts[#parts + 1] = k end
assert(#parts >= 17 and string.pack("<i4", 258) == "\2\1\0\0" and utf8.char(8364) == "\u{20AC}")
do local closed = false; do local c <close> = setmetatable({}, {__close = function() closed = true end}) end assert(closed) end
for i = 1, 200 do local s = ("x"):rep(i * 50) .. i; t[s] = i end
collectgarbage() collectgarbage("generational") collectgarbage("incremental")
assert(os.time{year = 2020, month = 1, day = 1, hour = 12} > 1577800000 and io.open("/nonexistent") == nil)
print "ok"
LUA
    }
    vary lua src/lua
}

zstd() {
    debian zstd libzstd
    build='make -s -C programs clean && make -s -j2 -C programs zstd && make -s -C tests datagen'
    check() { (cd tests/cli-tests && python3 run.py); }
    vary zstd zstd programs/zstd
}

memcached() {
    debian memcached memcached
    build='[ -e Makefile ] || ./configure >/dev/null; make -s clean; make -s -j2'
    check() { prove t/binary-get.t t/cas.t t/flags.t t/getset.t t/incrdecr.t t/evictions.t t/lru.t t/noreply.t; }
    vary memcached memcached
}

snappy() {
    debian snappy snappy
    local flags='-std=c++17 -O2 -g -DHAVE_CONFIG_H -I. -Ib'
    build="cmake -S . -B b -DSNAPPY_BUILD_TESTS=OFF -DSNAPPY_BUILD_BENCHMARKS=OFF >/dev/null && make -s -C b clean all &&
        g++ $flags snappy_unittest.cc snappy-test.cc snappy_test_data.cc b/libsnappy.a -lgtest_main -lgtest -lz -lpthread -o unittest"
    check() { ./unittest; }
    vary snappy unittest
}

ripgrep() {
    crate ripgrep ripgrep 14.1.1
    build='rm -rf target; cargo build --quiet --release --locked && cargo test --quiet --release --locked --test integration --no-run'
    check() { find target/release/deps -name 'integration-*' -executable -exec {} --quiet \;; }
    vary ripgrep target/release/rg
}

for program in "$@"; do
    "$program"
done
