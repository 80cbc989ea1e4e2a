#!/bin/bash
# Runs every fuzz target of some packages, two packages at a time.
#
#	internal/testprog/fuzz.sh TIME FOLDER ./PACKAGE…
#
# Each package is linked once for all its targets, and a target is fuzzed as go test would: in its folder,
# and with the inputs that go keeps. Where the time ends in the middle of an input, the fuzzer may call that
# a failure; a real one names its input.
set -uo pipefail
time=$1 work=$2
shift 2
kept=$(go env GOCACHE)/fuzz/$(go list -m) || exit
mkdir -p "$work" || exit

targets() {
	local package
	for package; do
		grep -hosE '^func Fuzz[A-Za-z0-9_]*' "$package"/*_test.go | sed "s|^func |$package |"
	done
}

targets "$@" >"$work/targets"
echo "$(wc -l <"$work/targets") targets"
cut -d' ' -f1 "$work/targets" | uniq -c | sort -rn |
	while read -r _ package; do
		echo "$package" $(sed -n "s|^$package ||p" "$work/targets")
	done | xargs -P 2 -L 1 bash -c '
		time=$0 work=$1 kept=$2 package=$3 failed=0
		bin=$work/${package//\//_}.test
		shift 3
		go test -c -fuzz=. -o "$bin" "$package" || exit 1
		cd "$package" || exit 1
		for target in "${@}"; do
			log=$("$bin" -test.run="^\$" -test.fuzz="^$target\$" -test.fuzztime="$time" -test.parallel=1 \
				-test.fuzzcachedir="$kept/${package#./}" -test.timeout=10m 2>&1) || {
				[[ $log == *"context deadline exceeded"* && $log != *"Failing input"* ]] || {
					printf "%s %s\n%s\n" "$package" "$target" "$log"
					failed=1
				}
			}
		done
		rm -f "$bin"
		exit "$failed"' "$time" "$work" "$kept"
