#!/usr/bin/env bash
# Measures what tracing a function adds to each of its calls: without a tool and with one in turn,
# so that both see the same machine. Prints the medians of a call's CPU time and of its time on the
# clock, in ns, and the part of the calls that the tool recorded.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

usage() {
	cat <<'END'
usage: bench/calls.sh [TURNS [WINDOW_MS [TOOL…]]]

  TURNS      how many (5)
  WINDOW_MS  of each measurement (300)
  TOOL       kernel, cpu (sliver trace with that engine), record (sliver record --trace),
             uftrace (of a program compiled with -pg), perf (perf record of a probe and a
             return probe), perf-trace (perf trace of the same), bpftrace (a count and a
             histogram by the same); default: those that are here
END
}
[[ ${1:-} != -h && ${1:-} != --help ]] || {
	usage
	exit 0
}
turns=${1:-5} window=${2:-300}
shift $(($# < 2 ? $# : 2))
tools=("$@")
if [[ ${#tools[@]} == 0 ]]; then
	tools=(kernel cpu record)
	! command -v uftrace >/dev/null || tools+=(uftrace)
	! command -v perf >/dev/null || tools+=(perf perf-trace)
	! command -v bpftrace >/dev/null || tools+=(bpftrace)
fi
work=$(mktemp -d)
tool=''
cleanup() {
	[[ -z $tool ]] || kill -INT "$tool" 2>/dev/null || true
	kill "$plain" 2>/dev/null || true
	wait 2>/dev/null || true
	[[ -z ${probed-} ]] || perf probe -q -d 'probe_cost:*' 2>/dev/null || true
	rm -rf "$work"
}
plain=''
trap cleanup EXIT
# perf and bpftrace look for trace points here, in a mount namespace of this script's own.
if [[ ! -d /sys/kernel/tracing/events && -z ${SLIVER_MOUNTED-} ]] && ((EUID == 0)); then
	SLIVER_MOUNTED=1 exec unshare -m sh -c 'mount -t tracefs tracefs /sys/kernel/tracing && exec "$@"' sh "$0" "$turns" "$window" "${tools[@]}"
fi
go build -o "$work/sliver" ./cmd/sliver
source=bench/callcost flags=(-O2 -fno-omit-frame-pointer)
gcc "${flags[@]}" -o "$work/cost" $source/cost.c $source/traced.c
gcc "${flags[@]}" -pg -c -o "$work/traced.o" $source/traced.c
gcc "${flags[@]}" -pg -o "$work/cost-pg" $source/cost.c "$work/traced.o" 2>/dev/null

coproc PLAIN { exec "$work/cost" "$window"; }
exec {to}>&"${PLAIN[1]}" {from}<&"${PLAIN[0]}"
read -r _ plain <&"$from"

probe() {
	[[ -n ${probed-} ]] && return
	perf probe -q -x "$work/cost" traced && perf probe -q -x "$work/cost" 'traced%return' && probed=yes
}
# start runs a tool on the plain program.
start() {
	local out=$work/tool.out
	[[ $1 != perf* ]] || probe || return
	case $1 in
	kernel | cpu) "$work/sliver" trace -p "$plain" -f traced -q --json --trace-engine "$1" --trace-limit 0 >"$out" 2>"$work/said" & ;;
	record) "$work/sliver" record -p "$plain" --trace traced --trace-limit 0 -q -o "$work/x.sliver" >"$out" 2>"$work/said" & ;;
	perf) perf record -q -e 'probe_cost:*' -p "$plain" -o "$work/perf.data" >"$out" 2>"$work/said" & ;;
	perf-trace) perf trace --no-syscalls -e 'probe_cost:*' -p "$plain" -o "$out" 2>"$work/said" & ;;
	bpftrace) bpftrace -e "uprobe:$work/cost:traced /pid == $plain/ { @s[tid] = nsecs; } uretprobe:$work/cost:traced /@s[tid]/ { @n = count(); @h = hist(nsecs - @s[tid]); delete(@s[tid]); }" >"$out" 2>"$work/said" & ;;
	*)
		echo "calls.sh: unknown tool $1" >&2
		return 2
		;;
	esac
	tool=$!
	sleep 3 # a tool says in its own way, or not at all, when it has begun
	kill -0 "$tool" 2>/dev/null || {
		echo "calls.sh: $1 ended: $(tail -n 3 "$work/said")" >&2
		tool=''
		return 1
	}
}
stop() {
	kill -INT "$tool" 2>/dev/null || true
	wait "$tool" 2>/dev/null || true
	tool=''
}
# told prints how many calls the tool recorded.
told() {
	case $1 in
	kernel | cpu) tail -n 1 "$work/tool.out" | grep -o '"calls":[0-9]*' | head -n 1 | cut -d: -f2 ;;
	record) "$work/sliver" sql "$work/x.sliver" --format csv 'select count(*) from calls' | tail -n 1 ;;
	perf) perf script -i "$work/perf.data" -F event 2>/dev/null | grep -c return ;;
	perf-trace) grep -c return "$work/tool.out" ;;
	bpftrace) sed -n 's/^@n: //p' "$work/tool.out" ;;
	esac || echo 0
}
# calls measures the plain program and appends a line: LABEL CPU ELAPSED CALLS
calls() {
	echo >&"$to"
	local c e n
	read -r _ c _ e _ n <&"$from"
	echo "$1 $c $e $n"
}
uftraced() {
	rm -rf "$work/uftrace"
	local said
	said=$(echo | uftrace record -d "$work/uftrace" -F traced "$work/cost-pg" "$window" 2>/dev/null | tail -n 1)
	set -- $said
	echo "with $2 $4 $6"
	uftrace report -d "$work/uftrace" -f call 2>/dev/null | awk '$2 == "traced" {print "told " $1; n = 1} END {if (!n) print "told 0"}'
}

printf '%-11s %9s %9s %9s %10s %9s\n' tool call +call times +elapsed recorded
for t in "${tools[@]}"; do
	: >"$work/lines"
	for ((i = 0; i < turns; i++)); do
		calls without >>"$work/lines"
		if [[ $t == uftrace ]]; then
			uftraced >>"$work/lines"
			continue
		fi
		start "$t" || break
		calls with >>"$work/lines"
		stop
		echo "told $(told "$t")" >>"$work/lines"
	done
	awk -v tool="$t" "$(<bench/median.awk)"'
		$1 == "without" { cpu = $2; clock = $3 }
		$1 == "with" { n++; base[n] = cpu; more[n] = $2 - cpu; held[n] = $3 - clock; calls = $4 }
		$1 == "told" { part[n] = 100 * $2 / calls }
		END {
			if (!n) exit
			b = median(base, n); m = median(more, n)
			printf "%-11s %9.0f %9.0f %9.1f %10.0f %8.1f%%\n", tool, b, m, (b + m) / b, median(held, n), median(part, n)
		}' "$work/lines"
done
