#!/usr/bin/env bash
# Measures sliver beside other tools that look at a running process: all on the
# same targets, in turn, in several rounds. Prints Markdown: tables with medians
# and ratios, sliver against its own limits, and the distribution of pauses.
#
#   bench/run.sh              five rounds of three seconds: twenty minutes
#   bench/run.sh -w           and puts the result into docs/performance.md
#   bench/run.sh --short      one short round of the C target: what tests run
#   bench/run.sh --check …    fails where a limit is missed
#   bench/run.sh --rows       only how true and how dear a recording is, and the loss of
#                             servers at 100 Hz and 1 kHz: two minutes a round
#   bench/run.sh --servers    only the loss of servers: at most six minutes for --rounds 5 --span 2s
#   bench/run.sh --rounds N --span 5s
#
# Peers: perf, gdb and eu-stack if installed; py-spy from PyPI, and
# samply by cargo if available, both in a separate folder
# (SLIVER_BENCH_CACHE; default: sliver-bench in the user's cache folder), which
# --no-install skips; async-profiler as bench/accuracy.sh installs it there. Servers are a
# Go HTTP server, a Java program, redis, Node, nginx and a Python loop, with clients on
# Unix sockets. Missing tools and servers are listed at the end.
#
# Needs Go and a C compiler. Run it as root, or where ptrace and perf are allowed;
# figures mean something on a machine that does nothing else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

samply=samply@0.13.1
build_limit=900 # seconds that building samply may take

write='' install=yes short='' flags=()
while (($#)); do
	case $1 in
	-w) write=yes ;;
	--short) short=yes install=no flags+=(-short -rounds 1 -span 1s) ;;
	--no-install) install=no ;;
	--check) flags+=(-check) ;;
	--rows | --servers) install=no flags+=("-${1#--}") ;;
	--rounds | --span)
		(($# > 1)) || {
			echo "run.sh: $1 wants a value" >&2
			exit 2
		}
		flags+=("-${1#--}" "$2")
		shift
		;;
	-h | --help)
		sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
		exit 0
		;;
	*)
		echo "run.sh: unknown argument $1; see --help" >&2
		exit 2
		;;
	esac
	shift
done

for need in go gcc; do
	command -v $need >/dev/null || {
		echo "run.sh: $need is missing" >&2
		exit 1
	}
done
cache=${SLIVER_BENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sliver-bench}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [[ $install == yes ]]; then
	mkdir -p "$cache"
	if [[ ! -x $cache/py-spy/bin/py-spy ]] && ! command -v py-spy >/dev/null && command -v python3 >/dev/null; then
		python3 -m pip install --quiet --disable-pip-version-check --target "$cache/py-spy" py-spy >"$work/pip" 2>&1 ||
			echo "run.sh: py-spy cannot be had: $(tail -n 1 "$work/pip")" >&2
	fi
	if [[ ! -x $cache/samply/bin/samply ]] && ! command -v samply >/dev/null && command -v cargo >/dev/null; then
		echo "run.sh: building $samply, once, for some minutes" >&2
		timeout "$build_limit" cargo install --quiet --locked --root "$cache/samply" "$samply" >"$work/cargo" 2>&1 ||
			echo "run.sh: samply cannot be had: $(tail -n 1 "$work/cargo")" >&2
	fi
fi
for peer in py-spy samply; do
	[[ ! -x $cache/$peer/bin/$peer ]] || flags+=("-$peer" "$cache/$peer/bin/$peer")
done

for lib in "$cache"/async-*/libasyncProfiler.so; do
	[[ ! -e $lib ]] || flags+=(-async-profiler "$lib")
done
if [[ -z $short ]] && command -v javac >/dev/null; then
	javac -d "$work/java" bench/clock/Threads.java
	flags+=(-java "$work/java")
fi

CGO_ENABLED=0 go build -trimpath -o "$work/sliver" ./cmd/sliver
go build -o "$work/peers" ./bench/peers
gcc -O2 -pthread -o "$work/clock" bench/clock/clock.c
gcc -O1 -o "$work/turns" bench/clock/turns.c
gcc -O1 -pthread -o "$work/herd" bench/clock/herd.c

measure() {
	"$work/peers" -sliver "$work/sliver" -clock "$work/clock" -turns "$work/turns" -herd "$work/herd" -script bench/clock/clock.py \
		-node bench/clock/serve.js -loop bench/runtimes/load.py "${flags[@]}"
}
if [[ -z $write ]]; then
	measure
	exit
fi
measure >"$work/out"
doc=docs/performance.md
grep -q '<!-- peers -->' $doc || {
	echo "run.sh: $doc has no place for the result, <!-- peers -->" >&2
	exit 1
}
awk -v out="$work/out" '
	/<!-- peers -->/ { print; print ""; while ((getline line < out) > 0) print line; print ""; skip = 1 }
	/<!-- \/peers -->/ { skip = 0 }
	!skip' $doc >"$work/doc"
cp "$work/doc" $doc
