#!/usr/bin/env bash
# Measures how long the names of a recording take, beside addr2line,
# llvm-symbolizer and perf script: bench/names has the details. The program
# with 100 MB of DWARF is compiled once, which takes some minutes.
#
#   bench/names.sh [-w] [FLAG of bench/names…]    -w: into docs/performance.md
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
write=no
if [[ ${1:-} == -w ]]; then
	write=yes
	shift
fi
cache=${SLIVER_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sliver-test}/names
mkdir -p "$cache"
CGO_ENABLED=0 go build -trimpath -o "$cache/sliver" ./cmd/sliver
out=$cache/table.md
{
	echo "$(uname -sr), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg) before."
	echo
	go run ./bench/names -sliver "$cache/sliver" -dir "$cache" "$@"
} >"$out"
if [[ $write == yes ]]; then
	awk -v table="$out" '
		/<!-- names -->/ { print; print ""; while ((getline line < table) > 0) print line; print ""; skip = 1 }
		/<!-- \/names -->/ { skip = 0 }
		!skip || /<!-- names -->/ && 0 { print }' docs/performance.md >"$out.doc"
	mv "$out.doc" docs/performance.md
else
	cat "$out"
fi
