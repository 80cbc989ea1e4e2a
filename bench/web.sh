#!/bin/sh
# Measures the page and its server: frame rate, memory and time to first paint
# in Chromium, opening and viewing ten million events, and what 100 clients cost
# a recording. Prints Markdown; with -w puts it into docs/performance.md,
# between the marks <!-- web --> and <!-- /web -->.
#
# Needs go, gcc, node, Chromium, the right to trace, and npm ci in web/page.
set -eu
cd "$(dirname "$0")/.."
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
tmp=$(mktemp -d)
target=
trap 'test -z "$target" || kill "$target" 2>/dev/null || :; rm -rf "$tmp"' EXIT
CGO_ENABLED=0 go build -o "$tmp/sliver" ./cmd/sliver
go build -o "$tmp/synthserve" ./web/internal/synthserve
go test -c -o "$tmp/cmd.test" ./cmd/sliver
go test -c -o "$tmp/web.test" ./web
gcc -O2 -g -pthread -I testdata/targets/include -o "$tmp/kitchen" testdata/targets/locks/kitchen.c
# Ten million events over 64 threads.
"$tmp/synthserve" -threads 64 -samples 1000000000 -events 156250 -save "$tmp/big.sliver" </dev/null >/dev/null 2>&1
"$tmp/kitchen" --seconds 600 --cooks 12 &
target=$!
{
	echo
	echo "Measured by \`bench/web.sh\` on $(nproc) CPUs ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)), load $(cut -d' ' -f1 /proc/loadavg) before, $("$chromium" --version 2>/dev/null | tr -d '\n' | sed 's/ *$//'), drawing in software."
	echo
	echo "| what | measured | target |"
	echo "|---|---|---|"
	(cd web/page && node test/bench.mjs "$tmp/sliver" "$chromium" "$tmp" "$target" "$tmp/big.sliver")
	kill "$target"
	target=
	printf '| the page, compressed | %d kB | 250 kB |\n' "$(($(cat web/dist/index.html web/dist/app.js web/dist/style.css web/dist/icon.svg | gzip -9 | wc -c) / 1000))"
	printf '| speedscope beside it, compressed, loaded when asked for | %d kB | |\n' "$(($(find web/dist/speedscope -type f -print0 | sort -z | xargs -0 cat | gzip -9 | wc -c) / 1000))"
	echo
	echo '```'
	(cd web && "$tmp/web.test" -test.run '^$' -test.bench 'Open|View' -test.benchtime 3x | grep ^Benchmark)
	(cd cmd/sliver && "$tmp/cmd.test" -test.run '^$' -test.bench Clients -test.benchtime 1x | grep ^Benchmark)
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
