#!/bin/sh
# Compares what `straddle scan` counts in an image with what readelf and awk count, section by section.
set -eu

usage() {
    cat <<'END'
usage: scripts/compare-scan.sh IMAGE [STRADDLE]

For every section: distinct addresses of sized data symbols (objects), those no larger than a line (small), those of
them on two lines (straddling), and lines that two or more touch (lines_shared). Prints the table of both; exits 1 if any
number differs. STRADDLE is the program to test (default: target/release/straddle).
END
}

case "${1:-}" in
-h | --help) usage; exit 0 ;;
"") usage >&2; exit 2 ;;
esac
image=$1
straddle=${2:-$(dirname "$0")/../target/release/straddle}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

"$straddle" scan --format json "$image" >"$work/scan.json"
line=$(sed -n 's/^ *"line_size": \([0-9]*\).*/\1/p' "$work/scan.json" | head -n 1)

# serde_json writes one key a line, so awk can read it; every section ends with its last key.
awk '/^  "sections": \[/ { on = 1 } /^  "findings": / { on = 0 }
    on && match($0, /"[a-z_]+": /) {
        key = substr($0, RSTART + 1, RLENGTH - 4); value = substr($0, RSTART + RLENGTH); sub(/,$/, "", value); v[key] = value
        if (key == "straddling_metadata") print v["index"], v["objects"], v["small"], v["straddling"], v["lines_shared"]
    }' "$work/scan.json" | sort -n >"$work/ours"

# Addresses do not fit the numbers of awk: the upper eight digits stay text, the lower eight become a number.
readelf -sW "$image" 2>/dev/null | awk -v line="$line" '
    function hex(text,   i, n) { n = 0; for (i = 1; i <= length(text); i++) n = n * 16 + index("0123456789abcdef", substr(text, i, 1)) - 1; return n }
    # With .symtab there, .dynsym is not read.
    /^Symbol table/ { table = $3; seen[table] = 1 }
    ($4 == "OBJECT" || $4 == "COMMON" || $4 == "TLS") && $7 ~ /^[0-9]+$/ {
        size = $3 ~ /^0x/ ? hex(substr($3, 3)) : $3 + 0
        if (size > 0 && size > sizes[table, $7, $2]) sizes[table, $7, $2] = size
    }
    END {
        wanted = ("'"'"'.symtab'"'"'" in seen) ? "'"'"'.symtab'"'"'" : "'"'"'.dynsym'"'"'"
        for (key in sizes) {
            split(key, part, SUBSEP); if (part[1] != wanted) continue
            s = part[2]; text = part[3]; size = sizes[key]
            high = substr(text, 1, length(text) - 8); low = hex(substr(text, length(text) - 7))
            first = int(low / line); last = int((low + size - 1) / line)
            objects[s]++
            if (size <= line) { small[s]++; if (first != last) straddling[s]++ }
            for (l = first; l <= last; l++) if (++touched[s, high, l] == 2) shared[s]++
        }
        for (s in objects) print s, objects[s], small[s] + 0, straddling[s] + 0, shared[s] + 0
    }' | sort -n >"$work/theirs"

# "Nr Name" of every section, to label the rows.
readelf -SW "$image" 2>/dev/null | sed -n 's/^ *\[ *\([0-9]*\)\] \([^ ]*\) .*/\1 \2/p' >"$work/names"
awk -v image="$image" 'FILENAME ~ /names$/ { name[$1] = $2; next }
    FILENAME ~ /ours$/ { ours[$1] = $2 " " $3 " " $4 " " $5; all[$1]; next }
    { theirs[$1] = $2 " " $3 " " $4 " " $5; all[$1] }
    END {
        printf "%s: objects small straddling lines_shared, straddle | readelf\n", image
        for (s = 0; s < 100000; s++) if (s in all) {
            same = ours[s] == theirs[s]; bad += !same; n++
            printf "%-3s %-22s %-26s | %-26s%s\n", s, name[s], ours[s], theirs[s], same ? "" : "  DIFFERS"
        }
        printf "%d sections, %d differ\n", n, bad
        exit bad > 0 || n == 0
    }' "$work/names" "$work/ours" "$work/theirs"
