#!/usr/bin/env bash
# Measures the accuracy of CPU shares: sliver and other profilers on the same programs, which count
# their own CPU time. Prints a Markdown table, the least accurate tool first.
#
#   bench/accuracy.sh [--rounds N] [--span 10s]
#   bench/accuracy.sh --servers [--span 10s]       Redis, nginx and PostgreSQL under load, beside perf
#
# Peers: perf if installed; py-spy and austin from PyPI, async-profiler from Maven Central and
# samply by cargo (some minutes; it needs perf_event_paranoid 1 or less, also as root), installed
# into a separate folder (SLIVER_BENCH_CACHE). Missing ones are skipped. Figures are meaningful only
# on an otherwise idle machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cache=${SLIVER_BENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sliver-bench}
async=4.1
mkdir -p "$cache"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

flags=()
while (($#)); do
	case $1 in
	--servers) flags+=(-servers) ;;
	--rounds | --span) flags+=("-${1#--}" "${2:?}") && shift ;;
	*)
		sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
		exit 2
		;;
	esac
	shift
done
pip() { python3 -m pip install --quiet --disable-pip-version-check --target "$cache/$1" "$2" >&2 || echo "$2 is left out" >&2; }
[[ -x $cache/py-spy/bin/py-spy ]] || pip py-spy py-spy==0.4.3
[[ -x $cache/austin/bin/austin ]] || pip austin austin-dist==4.0.0
if [[ ! -x $cache/samply/bin/samply ]] && command -v cargo >/dev/null; then
	timeout 1800 cargo install --quiet --locked --root "$cache/samply" samply@0.13.1 >&2 || echo "samply is left out" >&2
fi
if [[ ! -e $cache/async-$async/libasyncProfiler.so ]] && command -v mvn >/dev/null; then
	mvn -q dependency:get "-Dartifact=tools.profiler:async-profiler:$async" >&2 &&
		python3 - "$async" "$cache/async-$async" <<-'PY' || echo "async-profiler is left out" >&2
			import os, sys, zipfile
			version, out = sys.argv[1:]
			jar = os.path.expanduser(f"~/.m2/repository/tools/profiler/async-profiler/{version}/async-profiler-{version}.jar")
			os.makedirs(out, exist_ok=True)
			open(f"{out}/libasyncProfiler.so", "wb").write(zipfile.ZipFile(jar).read("linux-x64/libasyncProfiler.so"))
		PY
fi
CGO_ENABLED=0 go build -o "$work/sliver" ./cmd/sliver
go build -o "$work/accuracy" ./bench/accuracy
gcc -O1 -g -pthread -o "$work/duty" testdata/targets/c/duty.c
command -v javac >/dev/null && javac -d "$work/java" testdata/targets/java/Duty.java && flags+=(-java "$work/java")
[[ -x $cache/py-spy/bin/py-spy ]] && flags+=(-py-spy "$cache/py-spy/bin/py-spy")
[[ -x $cache/austin/bin/austin ]] && flags+=(-austin "$cache/austin/bin/austin")
[[ -x $cache/samply/bin/samply ]] && flags+=(-samply "$cache/samply/bin/samply")
[[ -e $cache/async-$async/libasyncProfiler.so ]] && flags+=(-async-profiler "$cache/async-$async/libasyncProfiler.so")
"$work/accuracy" -sliver "$work/sliver" -duty "$work/duty" -python testdata/targets/python/duty.py "${flags[@]}"
