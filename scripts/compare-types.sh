#!/usr/bin/env bash
# Compares what `straddle type` says of every struct of an image with what pahole says, from the same BTF.
set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/compare-types.sh [--base-btf KERNEL] IMAGE [STRADDLE]

For every struct that `pahole -F btf` prints: its size, and the path, offset and size of every member, also inside of
members whose type has no name; of bit fields the first bit and how many. Prints how many agree, and a row for each that
does not ("MEMBER@BIT:OURS/THEIRS"); exits 1 if there is one. KERNEL is that of a module. STRADDLE is the program to
test (default: target/release/straddle).
END
}

case "${1:-}" in
-h | --help) usage; exit 0 ;;
"") usage >&2; exit 2 ;;
esac
ours=() theirs=()
if [ "$1" = --base-btf ]; then
    ours=("$1" "$2") theirs=(--btf_base "$2")
    shift 2
fi
image=$1
straddle=${2:-$(dirname "$0")/../target/release/straddle}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# serde_json writes one key a line: the indent says of what. Rows: "struct NAME DEFINITION SIZE", "member … PATH BIT SIZE".
# A size is in bytes, or "bits N".
"$straddle" type --types btf "${ours[@]}" --format json "$image" '*' | awk '
    function value(  text) { text = $0; sub(/^[^:]*: /, "", text); sub(/,$/, "", text); gsub(/"/, "", text); return text }
    /^      "name": /   { name = value(); definition++ }
    /^      "size": /   { print "struct", name, definition, value() }
    /^          "path": /   { path = value(); bits = 0 }
    /^          "offset": / { offset = value() }
    /^          "size": /   { size = value(); if (size == "null") size = 0 }
    /^            "first": / { offset = offset * 8 + value(); bits = 1 }
    /^            "count": / { count = value() }
    /^          "straddles": / { print "member", name, definition, path, bits ? offset : offset * 8, bits ? "bits" count : size }
' >"$work/ours"

# pahole writes C: a member without a type of its own holds its members between braces, its name behind them.
pahole "${theirs[@]}" -F btf "$image" | awk '
    function plain(text) { gsub(/__attribute__\(\([^)]*\)*/, "", text); sub(/[ \t]+$/, "", text); return text }
    function row(path, text,   at) {
        match(text, /\/\*[^*]*\*\/$/); at = substr(text, RSTART + 2, RLENGTH - 4)
        first = at; bit = 0
        if (index(at, ":")) { split(at, half, ":"); first = half[1]; split(half[2], word, " "); bit = word[1]; size = word[2] }
        else { split(at, word, " "); first = word[1]; size = word[2] }
        rows++; paths[rows] = path; places[rows] = first * 8 + bit; sizes[rows] = width ? "bits" width : size
    }
    /^(struct|union) [A-Za-z0-9_]+ \{$/ { name = $2; rows = 0; depth = 0; total = 0; next }
    name == "" { next }
    /^\}/ {
        print "struct", name, total
        for (i = 1; i <= rows; i++) print "member", name, paths[i], places[i], sizes[i]
        name = ""; next
    }
    { sub(/^[ \t]+/, "") }
    /^\/\* size: / { total = $3; sub(/,/, "", total); next }
    /^((const|volatile) )*(struct|union|enum) *([A-Za-z0-9_]+ )?\{/ { starts[++depth] = rows + 1; next }
    /^\}/ {
        text = $0; declared = $0; sub(/;.*/, "", declared); sub(/^\} */, "", declared); declared = plain(declared)
        start = starts[depth--]; width = 0
        if (declared == "") next
        if (match(declared, /:[0-9]+$/)) { width = substr(declared, RSTART + 1); declared = substr(declared, 1, RSTART - 1) }
        array = declared ~ /^\*|\[/; sub(/\[.*/, "", declared); sub(/^[* ]+/, "", declared)
        for (i = start; i <= rows; i++) paths[i] = declared (array ? "[]" : "") "." paths[i]
        row(declared, text); next
    }
    /;[ \t]*\/\*[^*]*\*\/$/ {
        text = $0; declared = $0; sub(/;[ \t]*\/\*[^*]*\*\/$/, "", declared); declared = plain(declared); width = 0
        if (declared !~ /\(\*/ && match(declared, /:[0-9]+$/)) {
            width = substr(declared, RSTART + 1); declared = substr(declared, 1, RSTART - 1); sub(/ +$/, "", declared)
        }
        if (match(declared, /\(\*+(const |volatile )*[A-Za-z0-9_]+/)) {
            declared = substr(declared, RSTART, RLENGTH); sub(/^\(\*+(const |volatile )*/, "", declared)
        }
        sub(/(\[[^\]]*\])+$/, "", declared); sub(/.*[ *]/, "", declared)
        row(declared, text)
    }
' >"$work/theirs"

awk '
    FILENAME ~ /ours$/ && $1 == "struct" { all[$2] = all[$2] " " $3; total[$2, $3] = $4; next }
    FILENAME ~ /ours$/ { place[$2, $3, $4, $5] = $6; next }
    $1 == "struct" { finish(); name = $2; size = $3; n = 0; structs++; next }
    { members++; n++; path[n] = $3; at[n] = $4; width[n] = $5 }
    # Names may be those of several definitions; pahole prints one of them.
    function finish(   known, i, d, best, wrong, told, element, t, e) {
        if (name == "") return
        best = -1; d = split(all[name], known, " ")
        for (i = 1; i <= d; i++) {
            wrong = 0; told = ""; element = 0
            if (size != 0 && total[name, known[i]] != size) { wrong++; told = " size:" total[name, known[i]] "/" size }
            for (t = 1; t <= n; t++) if (path[t] ~ /\[\]/) element++
                else if (place[name, known[i], path[t], at[t]] != width[t]) {
                    wrong++; told = told " " path[t] "@" at[t] ":" place[name, known[i], path[t], at[t]] "/" width[t] }
            if (best < 0 || wrong < best) { best = wrong; said = told; e = element }
        }
        elements += e
        if (best == 0) { agree++; return }
        print "| " name " | " (best < 0 ? "not found" : said) " |"
        name = ""; failed = 1
    }
    END {
        finish()
        printf "%d of %d structs agree in size and in all of their %d members\n", agree, structs, members - elements
        printf "%d members are not of the struct: pahole shows what an element of an array holds, or what is pointed to\n", elements
        exit failed || structs == 0
    }' "$work/ours" "$work/theirs"
