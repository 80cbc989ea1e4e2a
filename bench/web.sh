#!/bin/sh
# Measures the page and its server, in parts:
#
#	live     first paint, frames and memory of a live page in Chromium
#	big      ten million events: opening, panning and zooming, memory
#	server   the same without a browser
#	hours    two hours of 64 busy threads: opening, zooming, memory
#	scroll   frames while the tracks of 1,000 threads or 10,000 goroutines scroll
#	clients  what 100 clients, 10 of which never read, cost a recording
#
# bench/web.sh [-w] [PART…], all parts where none is named. Prints Markdown; with
# -w it goes into docs/notes/measurements-page.md, between the marks <!-- web PART --> and
# <!-- /web PART -->.
#
# Needs go, gcc, node, Chromium, the right to trace, and npm ci in web/page.
set -eu
cd "$(dirname "$0")/.."
write=
if [ "${1:-}" = -w ]; then
	write=1
	shift
fi
[ $# -gt 0 ] || set -- live big server hours scroll clients
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
tmp=$(mktemp -d)
target=
trap 'test -z "$target" || kill "$target" 2>/dev/null || :; rm -rf "$tmp"' EXIT
CGO_ENABLED=0 go build -o "$tmp/sliver" ./cmd/sliver

intro() {
	echo
	echo "Measured by \`bench/web.sh $1\` on $(nproc) CPUs ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)), load $(cut -d' ' -f1 /proc/loadavg) before${2:-}."
	echo
}
table() {
	intro "$1" ", $("$chromium" --version 2>/dev/null | tr -d '\n' | sed 's/ *$//'), drawing in software"
	echo "| what | measured | target |"
	echo "|---|---|---|"
	(cd web/page && node test/bench.mjs "$tmp/sliver" "$chromium" "$tmp" "$1" "$2")
}
live() {
	gcc -O2 -g -pthread -I testdata/targets/include -o "$tmp/kitchen" testdata/targets/locks/kitchen.c
	"$tmp/kitchen" --seconds 600 --cooks 12 &
	target=$!
	table live "$target"
	kill "$target"
	target=
	printf '| the page, compressed (`gzip -9` of its HTML with the style and picture, and its script) | %d kB | 250 kB |\n' "$(($(cat web/dist/index.html web/dist/app.js | gzip -9 | wc -c) / 1000))"
	printf '| speedscope beside it, compressed, loaded when asked for | %d kB | |\n' "$(($(find web/dist/speedscope -type f -print0 | sort -z | xargs -0 cat | gzip -9 | wc -c) / 1000))"
}
big() {
	go build -o "$tmp/synthserve" ./web/internal/synthserve
	"$tmp/synthserve" -threads 64 -samples 1000000000 -events 156250 -save "$tmp/big.sliver" </dev/null >/dev/null 2>&1
	table big "$tmp/big.sliver"
}
benchmarks() { # PART PACKAGE NAMES TIMES
	go test -c -o "$tmp/test" "$2"
	intro "$1"
	echo '```'
	(cd "$2" && "$tmp/test" -test.run '^$' -test.bench "$3" -test.benchtime "$4" | grep ^Benchmark)
	echo '```'
}
server() { benchmarks server ./web 'Open|View' 3x; }
clients() { benchmarks clients ./cmd/sliver Clients 10x | tr '\t' '\n'; }
scroll() { benchmarks scroll ./web Scroll 3x | tr '\t' '\n'; }
hours() { benchmarks hours ./web TwoHours 1x | tr '\t' '\n'; }

doc=docs/notes/measurements-page.md
for part; do
	case $part in live | big | server | hours | scroll | clients) ;; *)
		echo "bench/web.sh: there is no part $part" >&2
		exit 2
		;;
	esac
	{
		"$part"
		echo
	} >"$tmp/out"
	if [ -z "$write" ]; then
		cat "$tmp/out"
		continue
	fi
	grep -q "<!-- web $part -->" "$doc" || {
		echo "bench/web.sh: $doc has no place for $part" >&2
		exit 1
	}
	awk -v out="$tmp/out" -v part="$part" '
		$0 == "<!-- web " part " -->" { print; while ((getline line < out) > 0) print line; skip = 1 }
		$0 == "<!-- /web " part " -->" { skip = 0 }
		!skip' "$doc" >"$tmp/doc"
	cp "$tmp/doc" "$doc"
done
