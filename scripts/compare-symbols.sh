#!/bin/sh
# Compares the symbols that straddle finds in a stripped kernel with those of its debug package.
set -eu

usage() {
    cat <<'END'
usage: scripts/compare-symbols.sh VERSION ARCHITECTURE…
       scripts/compare-symbols.sh 6.1.0-57-cloud amd64 arm64

For each architecture: fetches Debian's linux-image-VERSION-ARCHITECTURE-unsigned (vmlinuz) and -dbg (System.map, vmlinux)
into kernels/ (ignored by git; what apt keeps of another architecture is in there too) and prints
  - symbols in the kernel's own table, those that System.map has at the same address, and those that only one has, by reason;
  - of data objects, how often the way to the next symbol is the true size, and how often a straddle by it is one.
Fails where a symbol is not where System.map has it. A debug package is some hundred megabytes.
  SYMBOLS   the program that lists symbols (default: target/release/examples/symbols, of cargo build --release --examples)
END
}

case "${1:-}" in
-h | --help) usage; exit 0 ;;
esac
[ $# -ge 2 ] || { usage >&2; exit 2; }
cd "$(dirname "$0")/.."
for tool in apt-get dpkg-deb tar readelf; do
    command -v "$tool" >/dev/null || { echo "compare-symbols.sh: $tool is missing" >&2; exit 4; }
done
symbols=$(readlink -f "${SYMBOLS:-target/release/examples/symbols}")
version=$1
shift

# apt with a state of its own: another architecture needs nothing of this system.
apt() { # ARCHITECTURE COMMAND…
    state=$PWD/kernels/.apt-$1
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
    touch "$state/status"
    arch=$1
    shift
    (cd "$work" && apt-get -qq -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o Dir::State="$state" \
        -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" -o APT::Sandbox::User=root "$@" >&2)
}

fetch() { # ARCHITECTURE PACKAGE FOLDER FILE…: takes FOLDER/FILE-… of the package
    arch=$1 package=$2 inside=$3
    shift 3
    [ ! -s "kernels/$package/$1" ] || return 0
    apt "$arch" update
    apt "$arch" download "$package"
    mkdir -p "kernels/$package"
    for file in "$@"; do
        dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -O --wildcards "$inside/$file-*" >"$work/file"
        mv "$work/file" "kernels/$package/$file"
    done
    rm -f "$work"/*.deb
}

mkdir -p kernels
work=$(mktemp -d "$PWD/kernels/.compare.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
failed=0
for architecture in "$@"; do
    name=linux-image-$version-$architecture
    fetch "$architecture" "$name-unsigned" ./boot vmlinuz
    fetch "$architecture" "$name-dbg" ./usr/lib/debug/boot System.map vmlinux
    "$symbols" "kernels/$name-unsigned/vmlinuz" >"$work/ours"
    awk -v name="$name" '
        FNR == NR { ours[$1, $4]++; data += $3 == "d"; own++; next }
        { total++ }
        ours[$1, $3] > 0 { both++; ours[$1, $3]--; next }
        $3 ~ /^kallsyms_/ { why["the table itself"]++; next }
        $2 ~ /^[aA]$/ { why["numbers, no addresses"]++; next }
        $2 !~ /^[tTwW]$/ && !data { why["data: built without CONFIG_KALLSYMS_ALL"]++; next }
        $3 ~ /^(__efistub_|__kvm_nvhe_|__pi_|\$)/ || $3 == "_text" { why["names that scripts/kallsyms leaves out"]++; next }
        !data { why["code outside of .text: the same option"]++; next }
        { why["other"]++; if (other++ < 10) print "  only in System.map: " $0 }
        END {
            for (key in ours) if (ours[key] > 0) { split(key, part, SUBSEP); if (lost++ < 10) print "  not in System.map: " part[1], part[2] }
            printf "%s: %d in the table, %d in System.map, %d in both, %d only in the table\n", name, own, total, both, lost
            for (reason in why) printf "  only in System.map, %s: %d\n", reason, why[reason]
            exit lost > 0
        }' "$work/ours" "kernels/$name-dbg/System.map" || failed=1
    # Phases need the lower two digits only; addresses do not fit the numbers of awk.
    readelf -sW "kernels/$name-dbg/vmlinux" 2>/dev/null | awk '
        function phase(text,   n) { n = length(text); return (16 * digit(substr(text, n - 1, 1)) + digit(substr(text, n))) % 64 }
        function digit(c) { return index("0123456789abcdef", c) - 1 }
        function straddles(size, at) { return size <= 64 && at + size > 64 }
        FNR == NR { if ($4 == "OBJECT" && $3 > 0) { true_size[$2] = $3 > true_size[$2] ? $3 : true_size[$2] } next }
        $3 == "d" && $1 in true_size && !($1 in done) {
            done[$1]; size = true_size[$1]; bound = $2; at = phase($1); n++
            if (bound == size) equal++; else if (bound > size) larger++; else smaller++
            if (straddles(bound, at)) { told++; if (straddles(size, at)) right++ }
            if (straddles(size, at)) { real++; if (!straddles(bound, at)) { if (bound > 64) beyond++; else missed++ } }
        }
        END {
            if (!n) exit
            printf "  data objects: %d; way to the next symbol = size: %d; more: %d; less (a part has its own name): %d\n", n, equal, larger, smaller
            printf "  straddle by it: %d, truly: %d; true ones not told: %d, since it is larger than a line, and %d others\n", told, right, beyond, missed
        }' - "$work/ours"
done
exit "$failed"
