#!/usr/bin/env bash
# Runs all tests of sliver. On a machine where it may (root, apt-get), it first
# installs the tools that the tests use; elsewhere it says what will be skipped.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1

usage() {
	cat <<'EOF'
usage: ./test.sh [--short | --long] [--no-install] [PACKAGE…]

  --short       what CI runs: no long, raced live or fuzz tests, no benchmarks
  --long        the long form of each test, and a minute of fuzzing for each
                target in place of a second: some hours
  --no-install  install nothing; tests that lack a tool are skipped
  PACKAGE…      go package patterns in place of ./...

environment:
  SLIVER_REQUIRE     comma list of tools, or "all": where one of them is
                     missing, tests fail in place of being skipped
  SLIVER_HPROF_CORPUS
                     folder of real heap dumps, which are not in the repository
                     (default: ../shared/corpus, where it is there)
  SLIVER_TEST_CACHE  folder for compiled test programs and downloaded tools
                     (default: sliver-test in the user's cache folder)
EOF
}

short='' long=no fuzztime=1s install=yes patterns=()
while (($#)); do
	case $1 in
	--short) short=-short ;;
	--long) long=yes fuzztime=60s ;;
	--no-install) install=no ;;
	-h | --help)
		usage
		exit 0
		;;
	-*)
		usage >&2
		exit 2
		;;
	*) patterns+=("$1") ;;
	esac
	shift
done
whole=no
((${#patterns[@]})) || whole=yes patterns=(./...)
if ! command -v go >/dev/null; then
	echo "test.sh: Go is missing: https://go.dev/dl (go.mod says which version)" >&2
	exit 2
fi
export PATH=$PATH:$(go env GOPATH)/bin CGO_ENABLED=0 # as sliver is built; the race detector needs 1
export SLIVER_TEST_CACHE=${SLIVER_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sliver-test}
cache=$SLIVER_TEST_CACHE && mkdir -p "$cache" || exit 2
if [[ -z ${SLIVER_HPROF_CORPUS-} && -d ../shared/corpus ]]; then
	SLIVER_HPROF_CORPUS=$(realpath ../shared/corpus) || exit 2
	export SLIVER_HPROF_CORPUS
fi
work=$(mktemp -d) || exit 2
made_policy=no
cleanup() {
	rm -rf "$work"
	[[ $made_policy == no ]] || rm -f /usr/sbin/policy-rc.d
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

module=$(go list -m) || exit 2

# slowest lists the packages of a step that took 15 s and longer.
slowest() {
	awk -v module="$module/" '$1 == "ok" && $3 + 0 >= 15 {sub(module, "", $2); printf "        %-50s %4ds\n", $2, $3}' "$1" | sort -rnk2
}

# gist is what failed in a step, and the first lines that say why, for the end of a long log.
gist() {
	awk -v title="$1" 'BEGIN {print title ":"}
		/^ *--- FAIL|^ *FAIL |^panic:|^WARNING: DATA RACE/ {print "  " substr($0, 1, 200); left = 3; next}
		left > 0 && !/^ *(--- |ok )/ {print "  " substr($0, 1, 200); left--}' "$2" | head -n 40
}

# step runs a command under a title; its output is shown if it fails. Steps may run side by side.
step() {
	local title=$1 start=$SECONDS out=$work/out.$BASHPID
	shift
	if "$@" >"$out" 2>&1; then
		echo "$title" >>"$work/passed"
		printf 'ok    %-52s %4ds\n' "$title" $((SECONDS - start))
		slowest "$out"
	else
		echo "$title" >>"$work/failed"
		printf 'FAIL  %-52s %4ds\n' "$title" $((SECONDS - start))
		sed 's/^/      /' "$out"
		gist "$title" "$out" >>"$work/failures"
	fi
}

format() {
	local bad
	bad=$(find . -name '*.go' -not -path './.git/*' -not -path '*/node_modules/*' -exec gofmt -l {} +) || return
	[[ -z $bad ]] || {
		echo "not formatted: $bad"
		return 1
	}
}

targets_vet() { (cd testdata/targets/go/chain && export CGO_ENABLED=1 && go vet . && { ! command -v gcc >/dev/null || go vet -tags chaincgo .; }); }

# static builds the program for a machine and looks whether it would load anything.
static() {
	GOARCH=$1 go build -o "$work/sliver-$1" ./cmd/sliver || return
	command -v readelf >/dev/null || return 0
	if readelf -lW "$work/sliver-$1" | grep -E 'INTERP|DYNAMIC'; then
		echo "sliver for $1 is not a static program"
		return 1
	fi
}

# The layers of the tests (CONTRIBUTING.md) are labels in the packages: a line "//sliver:layer WORDS".
# Go starts tests in the order of packages: the biggest first, so that none is left to run alone.
mapfile -t packages < <(go list "${patterns[@]}" | sed "s|^$module/*|./|" |
	while read -r p; do echo "$(cat "$p"/*_test.go 2>/dev/null | wc -c) $p"; done | sort -rn | cut -d' ' -f2)
if ((${#packages[@]} == 0)); then
	echo "test.sh: no package matches ${patterns[*]}" >&2
	exit 2
fi
unit=() live=() raced=() big=()
for p in "${packages[@]}"; do
	layer=$(cat "$p"/*_test.go 2>/dev/null | sed -n 's|^//sliver:layer ||p' | tr '\n' ' ')
	[[ -z $short ]] || grep -qE '^\s*go [a-zA-Z(]|"sync"|"sync/atomic"|t\.Parallel\(|make\(chan' "$p"/*.go || layer+=" unraced" # one goroutine
	[[ " $layer " != *" live "* ]] || live+=("$p")
	[[ " $layer " != *" live "* || " $layer " == *" unraced "* ]] || raced+=("$p")
	[[ " $layer " == *" live "* || -n $short && " $layer " == *" unraced "* ]] || unit+=("$p")
	[[ " $layer " == *" live "* || " $layer " != *" big "* && ( -z $short || " $layer " != *" unraced "* ) ]] || big+=("$p")
done

unit_tests() { CGO_ENABLED=1 go test -vet=off -race -timeout=10m $short "${unit[@]}"; } # go vet is a step of its own
big_tests() { go test -vet=off -timeout=10m $short "${big[@]}"; }
# Two packages at a time: one after another they leave half of two CPUs idle.
live_tests() { go test -vet=off -p=2 -timeout=50m $short "${live[@]}"; }
# The step before has required all that these need.
raced_tests() { SLIVER_HPROF_CORPUS='' SLIVER_REQUIRE='' CGO_ENABLED=1 go test -vet=off -race -short -p=2 -timeout=10m "${raced[@]}"; }
# A day of churn goes by at 50 times its speed.
long_tests() { SLIVER_LONG=1 SLIVER_CHURN=1728s go test -count=1 -p=1 -timeout=12h "${packages[@]}"; }
# benchmarks shows that they run; the figures are had without -short.
benched() { (grep -lsE '^func Benchmark' ${packages[@]/%//*_test.go}; true) | xargs -rn1 dirname | sort -u; }
benchmarks() { benched | xargs -r go test -vet=off -short -run='^$' -bench=. -benchtime=1x -timeout=10m; }

all() { [[ $whole == no ]] || step "$@"; }
tool() { ! command -v "$2" >/dev/null || "$1" "${@:2}"; }
# What needs Go alone runs while the tools are fetched.
checks() {
	all "gofmt" format
	step "go vet" go vet "${packages[@]}"
	all "checks, arm64" internal/policy/shape.sh arm64 $short
	all "one static program, amd64" static amd64
	[[ -n $short ]] || all "one static program, arm64" static arm64
}
: >"$work/passed"
checks &
. internal/testprog/install.sh
[[ $install == no ]] || install_all
missing=$(missing_tools | paste -sd, | sed 's/,/, /g')
[[ -z $missing ]] || echo "missing, so what needs it is skipped: $missing"
wait

if ! command -v gcc >/dev/null; then # the race detector needs a C compiler
	live+=("${unit[@]}") unit=() raced=() big=()
fi
# What starts few processes runs beside the live tests, which leave half of two CPUs idle, and takes no CPU from them.
beside() {
	renice -n 19 -p "$BASHPID" >/dev/null
	all "go vet, target programs" targets_vet
	tool all gocognit internal/policy/shape.sh complexity
	tool all deadcode internal/policy/shape.sh dead $short
	tool step staticcheck staticcheck ${short:+-tests=false -checks=inherit,-U1000} "${packages[@]}"
	((${#unit[@]} == 0)) || step "unit tests, raced: ${#unit[@]} packages" unit_tests
	((${#big[@]} == 0)) || step "unit tests, not raced: ${#big[@]} packages" big_tests
}
beside &
((${#live[@]} == 0)) || step "live tests: ${#live[@]} packages" live_tests
wait
if [[ -z $short ]]; then
	((${#raced[@]} == 0)) || step "live tests, raced: ${#raced[@]} packages" raced_tests
	step "fuzz targets, $fuzztime each" internal/testprog/fuzz.sh "$fuzztime" "$work/fuzz" "${packages[@]}"
	step "benchmarks, once" benchmarks
	[[ $long == no ]] || step "tests at length" long_tests
	! command -v gcc >/dev/null || all "bench/run.sh, one short round" bench/run.sh --short
fi

echo
took=$(printf '%dm%02ds' $((SECONDS / 60)) $((SECONDS % 60))) passed=$(wc -l <"$work/passed")
if [[ -s $work/failed ]]; then
	cat "$work/failures"
	failed=$(wc -l <"$work/failed")
	echo "FAILED: $failed of $((passed + failed)) steps in $took: $(paste -sd';' "$work/failed" | sed 's/;/; /g')"
	exit 1
fi
echo "PASSED: $passed steps in $took${missing:+, without $missing}"
