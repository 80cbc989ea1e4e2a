#!/usr/bin/env bash
# Measures what a recording of several processes costs them, in interleaved pairs without and with sliver. Prints a row
# for each pair, the medians, and the mean with its standard error: what a few pairs cannot decide, more of them can.
#
#   bench/several.sh build DIR [PAIRS]      wall and CPU time of make -j2 in DIR, which has a target clean
#   bench/several.sh postgres [PAIRS]       transactions a second of pgbench with 200 connections, of which 4 work
#
# SLIVER is the program (built if it is not given), MAKE the command of the build, SECONDS_EACH the time of a pgbench.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
pids=()
cleanup() {
	for p in "${pids[@]}"; do kill -INT "$p" 2>/dev/null && wait "$p" 2>/dev/null || true; done
	rm -rf "$work"
}
trap cleanup EXIT
sliver=${SLIVER:-}
if [[ -z $sliver ]]; then
	sliver=$work/sliver
	go build -o "$sliver" ./cmd/sliver
fi
median() { awk "$(<bench/median.awk)"'{x[NR] = $1} END {print median(x, NR)}'; }

# mean COLUMN: the mean of the rows' column with its standard error.
mean() { awk -v c="$1" '{n++; s += $c; q += $c * $c} END {if (n > 1) {m = s / n; printf "%.1f ± %.1f", m, sqrt((q / n - m * m) / (n - 1))}}' "$work/rows"; }

# timed FILE COMMAND...: appends "WALL CPU", both in seconds, of the command and all that it waited for.
timed() {
	local out=$1 TIMEFORMAT='%R %U %S'
	shift
	{ time "$@" >"$work/out" 2>"$work/err"; } 2>"$work/time"
	awk '{print $1, $2 + $3}' "$work/time" >>"$out"
}

build() {
	local dir=$1 pairs=${2:-10} make=${MAKE:-make -s -j2}
	echo "pair without with wall% cpu%"
	for ((i = 1; i <= pairs; i++)); do
		for form in $( ((i % 2)) && echo without with || echo with without); do
			make -s -C "$dir" clean >/dev/null 2>&1
			if [[ $form == with ]]; then
				timed "$work/with" "$sliver" record -q -o "$work/x.sliver" -- $make -C "$dir"
			else
				timed "$work/without" $make -C "$dir"
			fi
		done
		paste <(tail -1 "$work/without") <(tail -1 "$work/with") | awk -v i="$i" '{printf "%d %.2f %.2f %+.1f %+.1f\n", i, $1, $3, 100 * ($3 / $1 - 1), 100 * ($4 / $2 - 1)}' | tee -a "$work/rows"
	done
	echo "median: wall $(awk '{print $4}' "$work/rows" | median) %, mean $(mean 4); CPU time with sliver's $(awk '{print $5}' "$work/rows" | median) %, mean $(mean 5)"
}

postgres() {
	local pairs=${1:-10} seconds=${SECONDS_EACH:-8} as=() bin=$(dirname "$(readlink -f "$(command -v initdb)")") rows=$work/rows
	if [[ $(id -u) == 0 ]]; then
		chown nobody "$work" && chmod 755 "$work"
		as=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
	fi
	"${as[@]}" "$bin/initdb" -D "$work/data" -A trust -U me --no-sync --locale=C >/dev/null
	"${as[@]}" "$bin/postgres" -D "$work/data" -k "$work" -c listen_addresses= -c fsync=off -c max_connections=250 >"$work/log" 2>&1 &
	local server=$!
	pids+=("$server")
	until "$bin/pgbench" -h "$work" -U me -i -q -s 5 postgres >/dev/null 2>&1; do sleep .2; done
	# 196 connections that are idle.
	mkfifo "$work/hold"
	for ((i = 0; i < 196; i++)); do
		("${as[@]}" "$bin/psql" -h "$work" -U me -q postgres <"$work/hold" >/dev/null 2>&1) &
		pids+=($!)
	done
	exec 9>"$work/hold"
	until [[ $("$bin/psql" -h "$work" -U me -Atc 'select count(*) from pg_stat_activity' postgres) -ge 197 ]]; do sleep .2; done
	tps() { "$bin/pgbench" -h "$work" -U me -n -S -c 4 -j 2 -T "$seconds" postgres 2>/dev/null | awk '/^tps/ {print $3}'; }
	# The CPU time of a recorder and its helpers, in s.
	used() { cat "/proc/$1/stat" $(pgrep -P "$1" | sed 's|.*|/proc/&/stat|') 2>/dev/null | sed 's/.*) //' | awk '{n += $12 + $13} END {print n / 100}'; }
	tps >/dev/null
	echo "pair without with lost% sliver's-share-of-a-core"
	for ((i = 1; i <= pairs; i++)); do
		for form in $( ((i % 2)) && echo without with || echo with without); do
			if [[ $form == with ]]; then
				"$sliver" record -p "$server" --children -i 10ms --json -o "$work/x.sliver" >"$work/json" 2>/dev/null &
				local recorder=$!
				sleep 2 # all processes are opened
				before=$(used "$recorder")
				tps >"$work/with"
				after=$(used "$recorder")
				kill -INT "$recorder"
				wait "$recorder" || true
			else
				tps >"$work/without"
			fi
		done
		own=$(awk -v a="$before" -v b="$after" -v s="$seconds" 'BEGIN {printf "%.1f%%", 100 * (b - a) / s}')
		awk -v i="$i" -v a="$(<"$work/without")" -v b="$(<"$work/with")" -v own="$own" 'BEGIN {printf "%d %.0f %.0f %+.1f %s\n", i, a, b, 100 * (1 - b / a), own}' | tee -a "$rows"
	done
	echo "median: $(awk '{print $4}' "$rows" | median) % of the transactions lost, mean $(mean 4)"
	exec 9>&-
}

case ${1:-} in
build | postgres) "$@" ;;
*)
	sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
