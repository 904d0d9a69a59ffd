#!/bin/sh
# Compares what `straddle diff` says of each data object of two images with what readelf and awk find.
set -eu

usage() {
    cat <<'END'
usage: scripts/compare-diff.sh BASE PATCHED [STRADDLE]

For all data objects whose section, source file and name are unique in both images (compilers number other names anew in
each build: what ends in a number is left out): how many are the same by place, moved,
resized, added, removed; of those that moved, how many are at another phase, newly straddle a line or no longer do. And of
functions with unique names: which changed their size. Prints the table of both; exits 1 if any number differs or an object
is told to be elsewhere. STRADDLE is the program to test (default: target/release/straddle).
END
}

case "${1:-}" in
-h | --help) usage; exit 0 ;;
esac
[ $# -ge 2 ] || { usage >&2; exit 2; }
base=$1
patched=$2
straddle=${3:-$(dirname "$0")/../target/release/straddle}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

"$straddle" diff --types none --format json "$base" "$patched" >"$work/diff.json"
line=$(sed -n 's/^ *"line_size": \([0-9]*\).*/\1/p' "$work/diff.json" | head -n 1)

# One row an object: KIND SECTION FILE NAME ADDRESS SIZE; of several symbols at one place the largest, a global one first.
objects() {
    { readelf -SW "$1" 2>/dev/null | sed -n 's/^ *\[ *\([0-9]*\)\] \([^ ]*\) .*/section \1 \2/p'; readelf -sW "$1" 2>/dev/null; } | awk '
        function hex(text,   i, n) { n = 0; for (i = 1; i <= length(text); i++) n = n * 16 + index("0123456789abcdef", substr(text, i, 1)) - 1; return n }
        $1 == "section" { section[$2] = $3; next }
        /^Symbol table/ { on = $3 ~ /symtab/; file = "-"; next }
        !on { next }
        $4 == "FILE" { file = $8 == "" ? "-" : $8; next }
        $7 !~ /^[0-9]+$/ || $8 == "" { next }
        {
            kind = ($4 == "OBJECT" || $4 == "COMMON" || $4 == "TLS") ? "data" : $4 == "FUNC" || $4 == "IFUNC" ? "code" : ""
            size = $3 ~ /^0x/ ? hex(substr($3, 3)) : $3 + 0
            if (kind == "" || size == 0) next
            global = $5 != "LOCAL"; key = kind SUBSEP $7 SUBSEP $2
            if (key in best && (size < sizes[key] || size == sizes[key] && (globals[key] > global || globals[key] == global && names[key] <= $8))) next
            best[key] = 1; sizes[key] = size; globals[key] = global; names[key] = $8; files[key] = global ? "-" : file
        }
        END { for (key in best) { split(key, p, SUBSEP); print p[1], section[p[2]], files[key], names[key], p[3], sizes[key] } }' | sort
}
objects "$base" >"$work/base"
objects "$patched" >"$work/patched"

# serde_json writes one key a line: LIST NAME SECTION CHANGE BASE SIZE PATCHED SIZE, "-" where it is not.
awk '/^  "(objects|functions_changed)": \[/ { list = /objects/ ? "data" : "code" } /^  "types_changed"/ { list = "" }
    list == "" { next }
    /^    \{/ { split("", v); side = "" }
    match($0, /"[a-z_]+": /) {
        key = substr($0, RSTART + 1, RLENGTH - 4); value = substr($0, RSTART + RLENGTH); sub(/,$/, "", value); gsub(/"/, "", value)
        if (key == "base" || key == "patched") side = key; else v[side key] = value
    }
    /^    \}/ {
        print list, v["name"], v["section"], v["change"], v["baseaddress"] == "" ? "- -" : v["baseaddress"] " " v["basesize"],
            v["patchedaddress"] == "" ? "- -" : v["patchedaddress"] " " v["patchedsize"]
    }' "$work/diff.json" >"$work/ours"

awk -v line="$line" '
    # Addresses do not fit the numbers of awk: the lower eight digits are enough for a line.
    function low(text,   i, n) { text = substr(text, length(text) > 8 ? length(text) - 7 : 1); n = 0; for (i = 1; i <= length(text); i++) n = n * 16 + index("0123456789abcdef", substr(text, i, 1)) - 1; return n }
    function plain(text) { sub(/^0x/, "", text); sub(/^0+/, "", text); return text == "" ? "0" : text }
    function straddles(at, size) { return size <= line && int(at / line) != int((at + size - 1) / line) }
    # Numbered by the compiler, and so another one in each build.
    function numbered(name) { return name ~ /[.][0-9]+$/ || name ~ /[.][0-9]+[.]/ || name ~ /^(__UNIQUE_ID_|__BTF_ID_|_note_)/ }
    function class(who, a, m, b, n,   moved) {
        if (m != n) { count[who, "resized"]++; return }
        moved = plain(a) != plain(b)
        count[who, moved ? "moved" : "same place"]++
        if (!moved) return
        if (low(plain(a)) % line != low(plain(b)) % line) count[who, "another phase"]++
        if (!straddles(low(plain(a)), m) && straddles(low(plain(b)), m)) count[who, "newly straddling"]++
        if (straddles(low(plain(a)), m) && !straddles(low(plain(b)), m)) count[who, "no longer straddling"]++
    }
    FILENAME ~ /base$/ { key = $1 " " $2 " " $3 " " $4; inbase[key]++; from[key] = $5; size[key] = $6; total += $1 == "data"; next }
    FILENAME ~ /patched$/ { key = $1 " " $2 " " $3 " " $4; inpatched[key]++; to[key] = $5; resize[key] = $6; next }
    # Rows of straddle, by where they are in base, or in patched.
    { change[$1, $3, plain($5)] = $4; bases[$1, $3, plain($5)] = $6; tos[$1, $3, plain($5)] = $7; tosizes[$1, $3, plain($5)] = $8
      if ($5 == "-") added[$1, $3, plain($7)] = 1 }
    END {
        for (key in inbase) {
            split(key, p, " ")
            if (inbase[key] != 1 || (key in inpatched && inpatched[key] > 1) || numbered(p[4])) continue
            where = p[1] SUBSEP p[2] SUBSEP plain(from[key])
            known = where in change
            if (p[1] == "code") {
                if (!(key in inpatched) || size[key] == resize[key]) continue
                count["readelf", "functions resized"]++
                if (known && change[where] == "resized") count["straddle", "functions resized"]++
                continue
            }
            if (!(key in inpatched)) {
                # Told to be elsewhere, or renamed: that is more than names tell.
                if (known && change[where] == "removed") { count["readelf", "removed"]++; count["straddle", "removed"]++ } else renamed++
                continue
            }
            covered++
            class("readelf", from[key], size[key], to[key], resize[key])
            if (known) {
                if (plain(tos[where]) != plain(to[key]) || tosizes[where] != resize[key]) { wrong++; if (wrong < 10) print "elsewhere: " key }
                class("straddle", from[key], bases[where], tos[where], tosizes[where])
            } else class("straddle", from[key], size[key], from[key], size[key])
        }
        for (key in inpatched) {
            split(key, p, " ")
            if (key in inbase || inpatched[key] != 1 || p[1] != "data" || numbered(p[4])) continue
            if ((p[1], p[2], plain(to[key])) in added) { count["readelf", "added"]++; count["straddle", "added"]++ }
        }
        n = split("same place,moved,another phase,newly straddling,no longer straddling,resized,added,removed,functions resized", names, ",")
        printf "%-22s %9s %9s\n", "", "straddle", "readelf"
        for (i = 1; i <= n; i++) {
            ours = count["straddle", names[i]] + 0; theirs = count["readelf", names[i]] + 0; bad += ours != theirs
            printf "%-22s %9d %9d%s\n", names[i], ours, theirs, ours == theirs ? "" : "  DIFFERS"
        }
        printf "%d of %d data objects have a unique name; %d told elsewhere; %d found under another name or section\n", covered, total, wrong, renamed
        exit bad > 0 || wrong > 0 || covered == 0
    }' "$work/base" "$work/patched" "$work/ours"
