package testprog

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A recipe describes how one variant of a program is compiled.
type recipe struct {
	compiler string   // a word of Need
	flags    []string // for Go: arguments of go build
	env      []string // for Go
	post     string   // a name in posts, applied to the program
}

// An afterwards is a step after compilation: a shell script that runs in the program's
// folder with its name as $1.
type afterwards struct {
	needs  []string
	script string
}

var posts = map[string]afterwards{
	"strip": {[]string{"strip"}, `strip -s "$1"`},
	// Symbols in a file beside the program.
	"debuglink": {[]string{"objcopy", "strip"},
		`objcopy --only-keep-debug "$1" "$1.debug" && strip -s "$1" && objcopy --add-gnu-debuglink="$1.debug" "$1"`},
	// Function symbols in an xz file in a section.
	"minidebug": {[]string{"objcopy", "strip", "nm", "xz"},
		`nm "$1" --format=posix --defined-only | awk '$2 == "T" || $2 == "t" {print $1}' >keep &&
		objcopy --only-keep-debug "$1" full && objcopy -S --keep-symbols=keep full mini && xz -q mini &&
		strip -s "$1" && objcopy --add-section .gnu_debugdata=mini.xz "$1" && rm keep full mini.xz`},
	"dwz": {[]string{"dwz"}, `dwz "$1"`},
}

func gcc(flags ...string) recipe { return recipe{compiler: "gcc", flags: flags} }

func (r recipe) with(compiler, post string) recipe {
	if compiler != "" {
		r.compiler = compiler
	}
	r.post = post
	return r
}

// cVariants are the variants of every C program; all but the last group are optimised and
// have only call frame information for unwinding.
var cVariants = func() map[string]recipe {
	o2 := gcc("-O2", "-g", "-fomit-frame-pointer")
	static := gcc(append(o2.flags, "-static", "-no-pie", "-fno-pie", "-DCHAIN_STATIC")...)
	return map[string]recipe{
		"O2":         o2,
		"pie":        gcc(append(o2.flags, "-fPIE", "-pie")...),
		"nopie":      gcc(append(o2.flags, "-fno-pie", "-no-pie")...),
		"static":     static,
		"static-pie": gcc(append(o2.flags, "-static-pie", "-fPIE", "-DCHAIN_STATIC")...),

		// With other symbols.
		"stripped":        o2.with("", "strip"),
		"static-stripped": static.with("", "strip"),
		"debuglink":       o2.with("", "debuglink"),
		"minidebug":       o2.with("", "minidebug"),
		"dwz":             o2.with("", "dwz"),
		"gz":              gcc(append(o2.flags, "-gz=zlib")...),
		"dwarf4":          gcc(append(o2.flags, "-gdwarf-4")...),
		"inline":          gcc(append(o2.flags, "-DCHAIN_INLINE")...),

		// With other unwinding tables.
		"nohdr":      gcc(append(o2.flags, "-Wl,--no-eh-frame-hdr")...),
		"debugframe": gcc("-O2", "-g", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"),
		"fp":         gcc("-O2", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"),

		"musl":        o2.with("musl-gcc", ""),
		"musl-static": static.with("musl-gcc", ""),

		"arm64":        o2.with("arm64-gcc", ""),
		"arm64-static": static.with("arm64-gcc", ""),

		"O0": gcc("-O0", "-g"),
	}
}()

var lockVariants = map[string]recipe{
	"O2":   gcc("-O2", "-g"),
	"fp":   cVariants["fp"],
	"musl": gcc("-O2", "-g").with("musl-gcc", ""),

	"static":       gcc("-O2", "-g", "-static"),
	"arm64-static": gcc("-O2", "-g", "-static").with("arm64-gcc", ""),
	"musl-static":  gcc("-O2", "-g", "-static").with("musl-gcc", ""),
}

func variants(compiler string, named map[string][]string, stripped string) map[string]recipe {
	rs := map[string]recipe{}
	for n, flags := range named {
		rs[n] = recipe{compiler: compiler, flags: flags}
	}
	rs["stripped"] = recipe{compiler: compiler, flags: named[stripped], post: "strip"}
	return rs
}

var cppVariants = variants("g++", map[string][]string{
	"O0":     {"-O0", "-g"},
	"O2":     {"-O2", "-g", "-fomit-frame-pointer"},
	"nopie":  {"-O2", "-g", "-fomit-frame-pointer", "-fno-pie", "-no-pie"},
	"static": {"-O2", "-g", "-fomit-frame-pointer", "-static"},
}, "O2")

// One codegen unit: symbols do not get the suffix that distinguishes units.
var rustVariants = variants("rustc", map[string][]string{
	"debug":   {"-C", "opt-level=0", "-g", "-C", "symbol-mangling-version=v0", "-C", "codegen-units=1"},
	"release": {"-C", "opt-level=3", "-g", "-C", "symbol-mangling-version=v0", "-C", "codegen-units=1"},
	// The older names, which the compiler used by default until v0.
	"legacy": {"-C", "opt-level=3", "-g", "--cfg", `mangling="legacy"`, "-C", "codegen-units=1"},
}, "release")

var (
	goPure = []string{"CGO_ENABLED=0"}
	goC    = []string{"CGO_ENABLED=1"}
)

var goVariants = map[string]recipe{
	"default":      {compiler: "go", env: goPure},
	"stripped":     {compiler: "go", env: goPure, flags: []string{"-ldflags=-s -w"}},
	"noopt":        {compiler: "go", env: goPure, flags: []string{"-gcflags=all=-N -l"}},
	"pie":          {compiler: "go", env: goPure, flags: []string{"-buildmode=pie"}},
	"pie-stripped": {compiler: "go", env: goPure, flags: []string{"-buildmode=pie", "-ldflags=-s -w"}},
	"arm64":        {compiler: "go", env: append([]string{"GOARCH=arm64"}, goPure...)},
	"external":     {compiler: "go", env: goC, flags: []string{"-ldflags=-linkmode=external"}},
	"cgo":          {compiler: "go", env: goC, flags: []string{"-tags=chaincgo"}},
	"cgo-stripped": {compiler: "go", env: goC, flags: []string{"-tags=chaincgo", "-ldflags=-s -w"}},
	"cgo-pie":      {compiler: "go", env: goC, flags: []string{"-tags=chaincgo", "-buildmode=pie"}},
}

// programs are all programs that can be built, by folder and name below testdata/targets.
var programs = map[string]map[string]recipe{
	"c/chain":    cVariants,
	"c/chainlib": cVariants,
	"c/spin":     cVariants,
	"hostile/nasty": {
		"O2":        gcc("-O2", "-g"),
		"debuglink": gcc("-O2", "-g", "-Wl,--build-id=none").with("", "debuglink"),
	},
	"hostile/mappings":   {"O2": gcc("-O2", "-g")},
	"hostile/stacks":     {"O2": gcc("-O2", "-g", "-fno-optimize-sibling-calls")},
	"hostile/churn":      {"O2": gcc("-O2", "-g")},
	"hostile/goroutines": {"default": goVariants["default"]},
	"c/sleepers":         cVariants,
	"c/churn":            cVariants,
	"c/exec":             cVariants,
	"c/exitcodes":        cVariants,
	"c/forest":           {"O2": gcc("-O2", "-g")},
	"c/family":           {"O2": gcc("-O2", "-g", "-fno-optimize-sibling-calls", "-fno-ipa-icf")},
	"c/gen":              {"O2": cVariants["O2"]},
	"c/kinwaits":         {"O2": cVariants["O2"]},
	"c/states":           {"O2": cVariants["O2"]},
	"c/inturn":           {"O2": cVariants["O2"]},
	"c/owncode":          {"O2": cVariants["O2"]},
	"c/wakes":            {"O2": cVariants["O2"]},
	"c/inkernel":         {"O2": cVariants["O2"]},
	"c/requests":         {"O2": cVariants["O2"]},
	"c/unusual":          {"O2": cVariants["O2"]},
	"c/files":            {"O2": cVariants["O2"]},
	"c/moves":            {"O2": cVariants["O2"]},
	"c/backs":            {"O2": cVariants["O2"]},
	"c/lookups":          {"O2": cVariants["O2"], "musl-static": cVariants["musl-static"]},
	"c/fsyncs":           {"O2": cVariants["O2"]},
	"c/traced":           {"O2": cVariants["O2"], "nopie": cVariants["nopie"], "O0": cVariants["O0"]},
	"c/stuck":            {"O2": cVariants["O2"]},
	"c/calls": {"O2": cVariants["O2"], "fp": cVariants["fp"], "arm64-static": cVariants["arm64-static"],
		"static": gcc("-O2", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-static")},
	"c/handler":   {"O2": cVariants["O2"], "static": cVariants["static"], "arm64-static": cVariants["arm64-static"]},
	"c/trouble":   {"O2": cVariants["O2"]},
	"c/jitreuse":  {"O2": cVariants["O2"]},
	"c/naps":      {"O0": cVariants["O0"], "O2fp": gcc("-O2", "-g", "-fno-omit-frame-pointer")},
	"c/duty":      {"O2": gcc("-O1", "-g"), "static": gcc("-O1", "-g", "-static"), "arm64-static": gcc("-O1", "-g", "-static").with("arm64-gcc", "")},
	"c/bursts":    {"O2": gcc("-O1", "-g")},
	"c/pool":      {"O2": gcc("-O2", "-g", "-fno-optimize-sibling-calls")},
	"c/siblings":  {"O2": gcc("-O2", "-g", "-fno-optimize-sibling-calls")},
	"c/gdbjit":    {"O2": cVariants["O2"]},
	"c/contexts":  {"O2": cVariants["O2"], "static": cVariants["static"]},
	"c/cputimes":  {"O2": gcc("-O2", "-g", "-pthread")},
	"c/reload":    {"O2": cVariants["O2"]},
	"c/latenames": {"O2": cVariants["O2"]},
	"c/latecalls": {"O2": cVariants["O2"], "nopie": cVariants["nopie"], "musl": cVariants["musl"], "static": cVariants["static"]},
	"c/laterlib":  {"O2": gcc("-O2", "-g")},
	"c/renames":   {"O2": cVariants["O2"]},
	"c/cuts":      {"O1": gcc("-O1", "-g", "-fno-optimize-sibling-calls")},
	"c/deadmain":  {"O2": cVariants["O2"]},
	"c/headless":  {"O2": cVariants["O2"]},
	"c/copied":    {"O2": cVariants["O2"]},
	"c/filtered":  {"O2": cVariants["O2"]},
	"c/moved":     {"O2": cVariants["O2"], "nopie": cVariants["nopie"], "onesegment": gcc("-O2", "-g", "-Wl,-z,noseparate-code")},
	"c/pluginlib": {"a": gcc("-O2", "-g"), "b": gcc("-O2", "-g", "-DWORK=work_b"),
		"a-noid": gcc("-O2", "-g", "-Wl,--build-id=none"), "b-noid": gcc("-O2", "-g", "-DWORK=work_b", "-Wl,--build-id=none")},
	"cpp/chain":    cppVariants,
	"cpp/throwing": {"O2": cppVariants["O2"]},

	"locks/contend":  lockVariants,
	"locks/deadlock": lockVariants,
	"locks/kitchen":  lockVariants,
	"locks/pthread":  lockVariants,
	"locks/guarded":  {"O2": gcc("-O2", "-g")},
	"locks/guardlib": {"O2": gcc("-O2", "-g"), "stripped": gcc("-O2", "-s")},
	"locks/shared":   lockVariants,
	"locks/turns":    lockVariants,

	"locks/cppturns":  cppVariants,
	"locks/rustturns": rustVariants,
	"locks/gosync":    {"default": goVariants["default"]},
	"locks/goturns":   goVariants,

	"d/names":      {"gdc": {compiler: "gdc", flags: []string{"-O1", "-g"}}, "ldc2": {compiler: "ldc2", flags: []string{"-O1", "-g"}}},
	"rust/chain":   rustVariants,
	"rust/traced":  {"release": rustVariants["release"], "legacy": rustVariants["legacy"]},
	"go/chain":     goVariants,
	"go/ids":       goVariants,
	"go/routines":  goVariants,
	"go/waits":     {"default": goVariants["default"]},
	"go/slow":      {"default": goVariants["default"]},
	"go/traced":    {"default": goVariants["default"]},
	"go/preempted": {"default": goVariants["default"]},
	"go/files":     {"default": goVariants["default"]},
	"go/shares":    goVariants,
}

// Programs returns the names for Build, sorted.
func Programs() []string { return slices.Sorted(maps.Keys(programs)) }

// Variants returns the variants of a program, sorted.
func Variants(program string) []string { return slices.Sorted(maps.Keys(programs[program])) }

// command returns the command that compiles the program in the folder of sources dir into
// out.
func (r recipe) command(program, dir, out string) ([]string, error) {
	source := dir + "/" + program
	common := []string{"-pthread", "-I" + dir + "/include", "-o", out}
	switch r.compiler {
	case "gcc", "musl-gcc", "arm64-gcc":
		args := append(append([]string{tools[r.compiler][0]}, common...), r.flags...)
		if strings.HasSuffix(program, "lib") {
			args = append(args, "-shared", "-fPIC")
		}
		return append(args, source+".c"), nil
	case "g++":
		args := append(append([]string{"g++", "-std=c++17"}, common...), r.flags...)
		return append(args, source+".cc"), nil
	case "gdc":
		return append(append([]string{"gdc", "-o", out}, r.flags...), source+".d"), nil
	case "ldc2":
		return append(append([]string{"ldc2", "-of=" + out}, r.flags...), source+".d"), nil
	case "rustc":
		args := []string{"rustc", "--edition=2021"}
		return append(append(args, r.flags...), "-o", out, source+".rs"), nil
	case "go":
		args := append([]string{"go", "build", "-C", source, "-buildvcs=false", "-o", out}, r.flags...)
		return append(args, "."), nil
	}
	return nil, fmt.Errorf("no compiler %q", r.compiler)
}
