#!/usr/bin/env bash
# Measures every stage of the way from a stop to a file: each Go benchmark ten
# times, summed up by benchstat. Prints Markdown; docs/notes/measurements.md holds the
# result of one run.
#
#   bench/stages.sh [COUNT] > stages.md
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
count=${1:-10}
PATH=$PATH:$(go env GOPATH)/bin
command -v benchstat >/dev/null || {
	echo "stages.sh: benchstat is missing: go install golang.org/x/perf/cmd/benchstat@latest" >&2
	exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

stage() { # stage TITLE PACKAGE PATTERN [BENCHTIME]
	echo "### $1"
	echo
	echo '```'
	echo "go test ./$2 -run '^\$' -bench '$3' -benchtime ${4:-200ms} -count $count | benchstat -"
	go test "./$2" -run '^$' -bench "$3" -benchtime "${4:-200ms}" -count "$count" >"$work/out" 2>"$work/err" || {
		cat "$work/out" "$work/err" >&2
		exit 1
	}
	benchstat now="$work/out" | sed -n '/│/,$p'
	echo '```'
	echo
}

echo "$(uname -sr), $(nproc) CPUs, $(go version | cut -d' ' -f3), load $(cut -d' ' -f1 /proc/loadavg) at the start."
echo
stage "The stop: attach, stop, registers, stack, let go" target '^BenchmarkCapture$' 200x
stage "Unwinding: one step, rule in the cache" unwind '^BenchmarkWarmStep'
stage "Unwinding: one step, rule to be compiled" unwind '^BenchmarkColdRule$'
stage "Difference of two samples, 30 frames" diff '^BenchmarkStep30$'
stage "Ring: one event" ringbuf '^Benchmark(Append|AppendAll|Read)$'
stage "Sample to ring, file included" trace '^BenchmarkSample$'
stage "Recording: events decoded, replayed" trace '^Benchmark(Decode|Replay)$'
