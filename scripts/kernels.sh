#!/bin/sh
# Fetches Debian kernels with debug information into kernels/ (ignored by git), one vmlinux a package.
set -eu

usage() {
    cat <<'END'
usage: scripts/kernels.sh [PACKAGE…]
       scripts/kernels.sh --list

Downloads each package with apt-get (no root needed) and unpacks only its vmlinux, to kernels/PACKAGE/vmlinux.
Without a name: the newest cloud kernel of this release. A package that is there already is left alone.
  --list   the packages that apt knows here
END
}

available() {
    apt-cache search --names-only '^linux-image-[0-9].*-dbg$' | awk '/^linux-image-[0-9.]+[^ ]*[0-9]/ { print $1 }' |
        grep -v 'meta' | sort -V
}

case "${1:-}" in
-h | --help) usage; exit 0 ;;
--list) available; exit 0 ;;
esac

cd "$(dirname "$0")/.."
for tool in apt-get apt-cache dpkg-deb tar; do
    command -v "$tool" >/dev/null || { echo "kernels.sh: $tool is missing: this script needs a Debian system" >&2; exit 4; }
done
if [ $# -eq 0 ]; then
    newest=$(available | grep -E '^linux-image-[0-9.]+-[0-9]+-cloud-.*-dbg$' | tail -n 1)
    [ -n "$newest" ] || { echo "kernels.sh: apt knows no kernel with debug information (try: apt-get update)" >&2; exit 4; }
    set -- "$newest"
fi

mkdir -p kernels
for package in "$@"; do
    folder=kernels/$package
    if [ -s "$folder/vmlinux" ]; then
        echo "$folder/vmlinux"
        continue
    fi
    work=$(mktemp -d kernels/.fetch.XXXXXX)
    trap 'rm -rf "$work"' EXIT INT TERM
    (cd "$work" && apt-get download "$package" >&2)
    # Only vmlinux: the modules beside it unpack to several gigabytes.
    dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$work" --wildcards './usr/lib/debug/boot/vmlinux-*'
    mkdir -p "$folder"
    mv "$work"/usr/lib/debug/boot/vmlinux-* "$folder/vmlinux"
    rm -rf "$work"
    trap - EXIT INT TERM
    echo "$folder/vmlinux"
done
