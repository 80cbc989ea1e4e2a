#!/bin/bash
# Checks the whole module with tools that need no build of their own: run it in the module's root.
#
#	internal/policy/shape.sh complexity      no function is harder to follow than the limit
#	internal/policy/shape.sh dead [-short]   no function is unreachable from a program and, without -short, a test
#	internal/policy/shape.sh arm64 [-short]  go vet for arm64; with -short, type errors alone
set -uo pipefail

# complexity: gocognit counts branches, those inside others more.
limit=40

# dead: what deadcode reports and is in use, as patterns, each with its reason.
in_use() {
	cat <<'LIST'
ARM64$
AMD64$
^internal/(dumptest|exporttest|hungfs|otelreceiver|testprog)/
^web/internal/synth/
^web/client/
^web/wire/wire\.go:.* Decode$
^export/perfetto/perfetto\.go:.* WritePlain$
^unwind/rule/arch\.go:.* ArchOf$
^unwind/managed/managed\.go:.* Ranges$
^lang/[^/]*/stepper\.go:.* Of$
^sampler/lacks\.go:
LIST
}
# ARM64, AMD64: the other architecture calls them.
# internal/…, web/internal/synth: only tests use these packages.
# web/client, what it calls, WritePlain: for other programs.
# lacks.go: engines that lack an ability embed its types; the engine in use has all.
# ArchOf, Ranges, Of: only tests use them; they move there.

case ${1-} in
complexity)
	found=$(gocognit -test=false -ignore '(^|/)(testdata|node_modules)/' -over $limit -f '{{.PkgName}} {{.FuncName}} {{.Pos}}: {{.Complexity}}' . 2>/dev/null)
	[[ -z $found ]] || {
		printf 'above cognitive complexity %d:\n%s\n' $limit "$found"
		exit 1
	}
	;;
dead)
	all=$(deadcode ./...) || exit
	tests=''
	[[ ${2-} == -short ]] || tests=$(deadcode -test ./...) || exit
	# An example without output is compiled and not run.
	found=$(printf '%s\n%s\n' "$all" "$(grep -v ' Example[A-Za-z_]*$' <<<"$tests")" | sort -u | grep . | grep -vEf <(in_use))
	[[ -z $found ]] || {
		printf 'not reachable:\n%s\n' "$found"
		exit 1
	}
	;;
arm64)
	if [[ ${2-} == -short ]]; then
		go run ./internal/policy/typecheck arm64 ./...
	else
		GOARCH=arm64 go vet ./...
	fi
	;;
*)
	echo "usage: internal/policy/shape.sh complexity | dead [-short] | arm64 [-short]" >&2
	exit 2
	;;
esac
