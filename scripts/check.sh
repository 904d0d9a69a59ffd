#!/usr/bin/env bash
# scripts/check.sh: every test of straddle. Needs Rust and gcc; the rest it installs as root, or names.
#
# Time budget on two cores, by part (the actuals are printed at the end; the whole must stay under 20 minutes):
#   packages 2 min · build 3 · fmt and clippy 1 · tests 4 · doc tests 1 · real programs 1 · fuzz smoke 4 (most of it building)
#   · fixtures 5
#
# Measuring tests (the fixtures) run last, alone and one at a time: a build beside them would be the measurement.
set -euo pipefail
cd "$(dirname "$0")/.."
# Everything is built once: no caches for the next build, and no more of debug information than a backtrace needs.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only CARGO_PROFILE_TEST_DEBUG=line-tables-only

case ${1:-} in
-h | --help)
    sed -n '2,8s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac

actuals=()
part() { # NAME COMMAND…
    local name=$1 start=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    "$@"
    actuals+=("$(printf '%-12s %4d s' "$name" $((SECONDS - start)))")
}

# Debian package, and the command or file that shows it is there.
needed=(gcc:gcc gcc-aarch64-linux-gnu:aarch64-linux-gnu-gcc g++:g++ make:make binutils:readelf binutils:ld.gold lld:ld.lld mold:mold
    g++-aarch64-linux-gnu:aarch64-linux-gnu-g++ gcc-s390x-linux-gnu:s390x-linux-gnu-gcc g++-s390x-linux-gnu:s390x-linux-gnu-g++
    clang:clang chromium-headless-shell:chromium-headless-shell dwarves:pahole elfutils:eu-readelf dwz:dwz git:git cmake:cmake
    linux-perf:perf
    xz-utils:xz lz4:lz4 zstd:zstd lzop:lzop bzip2:bzip2 libgtest-dev:/usr/include/gtest/gtest.h zlib1g-dev:/usr/include/zlib.h)

packages() {
    local missing=() entry
    for entry in "${needed[@]}"; do
        command -v "${entry#*:}" >/dev/null || [ -e "${entry#*:}" ] || missing+=("${entry%%:*}")
    done
    if [ ${#missing[@]} -gt 0 ]; then
        if [ "$(id -u)" != 0 ]; then
            echo "missing Debian packages: ${missing[*]}" >&2
            echo "as root: apt-get install ${missing[*]}" >&2
            exit 4
        fi
        apt-get -qq update
        DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
    fi
    cargo fuzz --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-fuzz
}

tests() {
    local matrix=${CARGO_TARGET_DIR:-target}/tmp/oracles.txt
    rm -f "$matrix"
    # Every tool is here: what one that is missing would skip fails.
    export CI=${CI:-true}
    # The first inputs of the fuzz target `profile`: what the tests write, and what the real perf makes of it.
    export STRADDLE_SEEDS=$PWD/tests/fuzz/corpus/profile
    mkdir -p "$STRADDLE_SEEDS"
    # The measuring tests are named fixtures; they have a part of their own.
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --no-fail-fast --all-targets -E 'not binary(fixtures)'
    else
        cargo test --lib --bins --test integration
    fi
    printf '\n'
    cat "$matrix"
}

lint() {
    cargo fmt --check
    cargo clippy --quiet --all-targets -- -D warnings
}

# Where a fresh checkout starts from: small files of our own, made here so that no binary lies in git.
seeds() {
    local at=tests/fuzz/corpus cc=(gcc -ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables)
    local c='int one = 1, zero; const int four = 4; int g(void) { return one + zero; } int f(void) { return g() + four; }'
    local typed='struct n { struct n *next; _Atomic int hits[4]; union { long l; char c : 3; }; } n[2]; static volatile int v[3];'
    mkdir -p "$at"/{btf,elf,map,object,profile,record}
    gcc -g -O1 -c fixtures/common/table.c -o "$at/elf/object"
    gcc -g -fdebug-types-section -fPIC -shared -nostdlib -xc - -o "$at/elf/types" <<<"$typed"
    # The fuzz target's first byte says how the rest is used: 0, as it is.
    gcc -g -c -xc - -o "$at/elf/btf" <<<"${typed/_Atomic/const}"
    pahole -J "$at/elf/btf"
    strip -g "$at/elf/btf"
    objcopy -O binary --only-section=.BTF --set-section-flags .BTF=alloc "$at/elf/btf" "$at/btf/raw"
    { printf '\0'; cat "$at/btf/raw"; } >"$at/btf/pahole"
    rm "$at/btf/raw"
    ! command -v clang >/dev/null || { printf '\0'; clang -target bpfeb -g -xc -c - -o - <<<"${typed/_Atomic/const}"; } >"$at/btf/bpfeb"
    gcc -O1 -fPIC -shared -nostdlib fixtures/common/table.c -o "$at/elf/shared"
    "${cc[@]}" -m32 -xc -c - -o "$at/elf/object32" <<<"$c"
    aarch64-linux-gnu-gcc -O2 -xc -c - -o "$at/elf/arm64" <<<"$c"
    gcc -O2 -nostdlib -static -Wl,-e,f,--emit-relocs -xc - -o "$at/elf/relocs" <<<"$c"
    "${cc[@]}" -xc -c - -o "$at/object/object" <<<"$c"
    rm -f "$at/object/archive"
    ar rcs "$at/object/archive" "$at/object/object"
    ld -e f "$at/object/object" -o "$at/elf/program" -Map "$at/map/object"
    ld -e f --whole-archive "$at/object/archive" -o /dev/null -Map "$at/map/archive"
    local linker
    for linker in ld.gold ld.lld mold; do
        ! command -v "$linker" >/dev/null || "$linker" -e f "$at/object/object" -o "$at/elf/$linker" -Map="$at/map/$linker"
    done
    cp tests/fuzz/seeds/record/* "$at/record/"
    printf 'one w 12\ns.a\ns.b rw\n' >"$at/profile/list"
    printf 's struct fast path usage breakdown\n\nType Name fastpath_tx_access fastpath_rx_access comment\nint a read_mostly x\n' >"$at/profile/table"
    kernels "$at"
}

# A kernel of some bytes: stripped, as arm64's memory image, as a list, and in every wrapping.
kernels() { # CORPUS
    local from=$PWD/tests/fuzz/seeds/kallsyms at work pack
    at=$(cd "$1" && pwd)
    work=$(mktemp -d)
    mkdir -p "$at"/{kallsyms,vmlinuz}
    (
        cd "$work"
        gcc -c "$from/kernel.s" -o x86.o
        ld --no-warn-rwx-segments -T "$from/kernel.ld" x86.o -o whole
        nm -n whole >"$at/kallsyms/System.map"
        strip -s whole -o "$at/kallsyms/stripped"
        clang --target=aarch64-linux-gnu -Wa,-defsym,ARM64=1 -c "$from/kernel.s" -o arm64.o
        ld.lld -T "$from/kernel.ld" --oformat=binary arm64.o -o "$at/kallsyms/arm64"
        for pack in gzip 'xz --check=crc32 --x86 --lzma2=dict=1MiB' 'zstd -q' bzip2 'xz --format=lzma' lzop 'lz4 -l -q'; do
            $pack -c <"$at/kallsyms/stripped" >"$at/vmlinuz/${pack//[^a-z0-9]/}"
            bzimage "$at/vmlinuz/${pack//[^a-z0-9]/}" >"$at/vmlinuz/bz-${pack//[^a-z0-9]/}"
        done
        { printf 'MZ\0\0zimg'; word 64; word "$(stat -c %s "$at/vmlinuz/gzip")"; head -c 48 /dev/zero; cat "$at/vmlinuz/gzip"; } >"$at/vmlinuz/zboot"
    )
    rm -rf "$work"
}

word() { # NUMBER: four bytes, the lowest first
    printf "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24)))"
}

# A boot sector and a sector of setup, the payload behind them, and the length of what comes out of it (gzip has its own).
bzimage() { # PAYLOAD
    local appended=4
    [ "${1##*/}" != gzip ] || appended=0
    head -c 497 /dev/zero; printf '\x01'
    head -c 12 /dev/zero; printf '\x55\xaa\0\0HdrS\x0f\x02'
    head -c 64 /dev/zero; word 0; word $(($(stat -c %s "$1") + appended))
    head -c 432 /dev/zero
    cat "$1"
    [ "$appended" = 0 ] || word "$(stat -c %s "$at/kallsyms/stripped")"
}

fuzz() {
    local target
    seeds
    for target in $(cd tests/fuzz && sed -n 's/^name = "\(.*\)"/\1/p' Cargo.toml | grep -v '^straddle'); do
        cargo fuzz run -s none --fuzz-dir tests/fuzz "$target" -- -max_total_time=7 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1
    done
}

part packages packages
# With what the fixtures need, so that nothing is built twice.
part build cargo test --release --quiet --test fixtures --no-run
part lint lint
part tests tests
part doctests cargo test --quiet --doc
part programs scripts/programs.sh lua snappy
part fuzz fuzz
# The other orders of these repeat an answer that another fixture gives: scripts/fixtures.sh 1 order- runs them all.
others=()
for fixture in no-change both masked extra-work kept rust-extra-work rust-irrelevant-patch; do
    others+=(--skip "$fixture/order-2" --skip "$fixture/order-3")
done
for linker in gold lld mold; do others+=(--skip "extra-work/order-1/$linker"); done
part fixtures cargo test --release --test fixtures -- "${others[@]}"

printf '\n== time\n'
printf '%s\n' "${actuals[@]}"
printf '%-12s %4d s\n' whole "$SECONDS"
