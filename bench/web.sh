#!/bin/sh
# Measures the page and its server: frame rate, memory and time to first paint
# in Chromium, opening and viewing ten million events, and what 100 clients cost
# the sampling side. Prints Markdown; with -w puts it into docs/performance.md,
# between the marks <!-- web --> and <!-- /web -->.
#
# Needs go, node, Chromium, and npm ci in web/page.
set -eu
cd "$(dirname "$0")/.."
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/synthserve" ./web/internal/synthserve
{
	echo
	echo "Measured by \`bench/web.sh\` on $(nproc) CPUs ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)), load $(cut -d' ' -f1 /proc/loadavg) before, $("$chromium" --version 2>/dev/null | tr -d '\n' | sed 's/ *$//'), drawing in software."
	echo
	echo "| what | measured | target |"
	echo "|---|---|---|"
	(cd web/page && node test/bench.mjs "$tmp/synthserve" "$chromium")
	echo
	echo '```'
	go test ./web -run '^$' -bench 'Open|View' -benchtime 5x | grep ^Benchmark
	go test ./web -run '^$' -bench Clients -benchtime 1x | grep ^Benchmark
	echo '```'
	echo
} >"$tmp/out"
if [ "${1:-}" != -w ]; then
	cat "$tmp/out"
	exit
fi
doc=docs/performance.md
[ -e "$doc" ] || printf '# Performance\n' >"$doc"
grep -q '<!-- web -->' "$doc" || printf '\n## The live view\n\n<!-- web -->\n<!-- /web -->\n' >>"$doc"
awk -v out="$tmp/out" '
	/<!-- web -->/ { print; while ((getline line < out) > 0) print line; skip = 1 }
	/<!-- \/web -->/ { skip = 0 }
	!skip' "$doc" >"$tmp/doc"
cp "$tmp/doc" "$doc"
