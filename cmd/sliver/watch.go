package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/caps"
	"github.com/sliverprof/sliver/internal/telemetry"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/watch"
	"github.com/sliverprof/sliver/watch/control"
	"github.com/sliverprof/sliver/watch/dumps"
	"github.com/sliverprof/sliver/watch/notify"
	"github.com/sliverprof/sliver/watch/trigger"
)

// watchFlags are the flags of watch.
type watchFlags struct {
	pids        somePIDs
	names       []string
	units       []string
	cgroups     []string
	targeted    bool // the command line gives the targets
	threads     string
	interval    time.Duration
	jitter      percent
	groups      int
	stop        string
	maxOverhead percent
	maxCPU      percent
	symbols     nameFlags

	keep      time.Duration
	keepBytes byteSize
	ringFile  string
	memLimit  byteSize
	rules     map[trigger.Kind]*[]string
	none      bool
	config    string

	dir      string
	outputs  []string
	maxDumps int
	maxBytes byteSize
	exec     string
	webhook  string
	journal  bool

	as        string
	http      string
	httpToken string
	token     string // chosen by the user: see checkHTTP
	metrics   string
	logFormat string
	hurry     func() // ends waits for servers of names; nil: none

	fs *pflag.FlagSet
}

func init() {
	for _, s := range trigger.Subjects() {
		if _, taken := flagTable[s.Flag]; !taken {
			flagTable[s.Flag] = flagInfo{"Triggers", cmp.Or(s.Word, "RULE")}
		}
	}
}

// defaultRules apply if no rule is given.
var defaultRules = []struct {
	kind trigger.Kind
	text string
}{{trigger.Stall, "5s"}, {trigger.Deadlock, "5s"}, {trigger.Memory, "auto"}, {trigger.Crash, "yes"}}

func (f *watchFlags) register(fs *pflag.FlagSet) {
	f.fs = fs
	fs.VarP(&f.pids, "pid", "p", "watch these processes until they end")
	fs.StringArrayVar(&f.names, "name", nil, "watch every process whose name matches, including ones started later; repeatable")
	retireShort(fs, "n", "name") // -n is --rows elsewhere
	fs.StringArrayVar(&f.units, "unit", nil, "watch the processes of this systemd unit, including ones started later; repeatable")
	fs.StringArrayVar(&f.cgroups, "cgroup", nil, "watch the processes of this control group and those below it, including ones started later; repeatable")
	fs.StringVarP(&f.threads, "threads", "t", "all", threadsUsage)
	registerInterval(fs, &f.interval, 20*time.Millisecond)
	f.jitter = .5
	fs.Var(&f.jitter, "jitter", "random variation of the time between two samples (at most 50%; 0: none)")
	registerSamplers(fs, &f.groups)
	registerStop(fs, &f.stop)
	f.maxOverhead = .01
	fs.Var(&f.maxOverhead, "max-overhead", "limit of the share of a thread's time in stops (0: no limit)")
	busy, _ := watch.DefaultMaxCPU()
	f.maxCPU = percent(busy)
	fs.Var(&f.maxCPU, "max-cpu", "limit of the CPU that sliver uses, with the time of stops; the interval grows to keep it, as far as the triggers allow ('sliver ls' shows it; 0: no limit; default 3%, or 0.6% of each CPU if there are fewer than five and all are busy)")
	f.symbols.register(fs, "")

	fs.DurationVar(&f.keep, "keep", 30*time.Second, "how much time is kept of each thread (0: what fits)")
	f.keepBytes = watch.DefaultKeepBytes
	fs.Var(&f.keepBytes, "keep-bytes", "limit of the memory for the rings of a process")
	fs.StringVar(&f.ringFile, "ring-file", "auto", "directory of the ring files, from which 'sliver recover' restores the events of a killed sliver (auto: in $XDG_RUNTIME_DIR; none: no files)")
	for _, r := range trigger.Subjects() {
		texts := new([]string)
		if f.rules == nil {
			f.rules = map[trigger.Kind]*[]string{}
		}
		f.rules[r.Kind] = texts
		fs.StringArrayVar(texts, r.Flag, nil, r.Help)
	}
	retire(fs, "on-crash", "crash")
	retire(fs, "on-call", "call")
	fs.Var(&f.memLimit, "mem-limit", "memory limit for --memory if no control group sets one (default: the machine's RAM)")
	fs.BoolVar(&f.none, "no-triggers", false, "write dumps only on request")
	fs.StringVar(&f.config, "config", "", "read settings and triggers from this YAML file; SIGHUP reloads the triggers")

	fs.StringVar(&f.dir, "dir", ".", "directory for dumps")
	fs.StringArrayVarP(&f.outputs, "output", "o", nil, "also write each dump in the format of this extension, such as .pftrace or .pb.gz; repeatable")
	fs.IntVar(&f.maxDumps, "max-dumps", 20, "limit of the number of dumps; the oldest are deleted first (0: no limit)")
	f.maxBytes = 1 << 30
	fs.Var(&f.maxBytes, "max-bytes", "limit of the size of all dumps (0: no limit)")
	fs.StringVar(&f.exec, "exec", "", "run this shell command after a dump; $SLIVER_DUMP is its file")
	fs.StringVar(&f.webhook, "webhook", "", "post JSON to this URL after a dump")
	fs.BoolVar(&f.journal, "journal", false, "write an entry to systemd's journal after a dump")

	fs.StringVar(&f.as, "recorder", "", "name of this recorder for 'sliver dump' and 'sliver ls'")
	retire(fs, "as", "recorder")
	fs.StringVar(&f.http, "http", "", "serve POST /dump and GET /status, /healthz, /readyz, /metrics at this address")
	fs.StringVar(&f.httpToken, "http-token", "", "file with the token for /dump and /status (or $SLIVER_HTTP_TOKEN; default: a random token, shown in the log; addresses that other machines can reach need one)")
	fs.StringVar(&f.metrics, "metrics", "", "serve Prometheus metrics about sliver itself at this address (a port alone: on loopback)")
	fs.StringVar(&f.logFormat, "log", "text", "format of the log on standard error: text or json")
}

// byteSize is a flag such as 64MiB.
type byteSize int64

func (b *byteSize) String() string {
	n := int64(*b)
	for _, u := range sizeUnits {
		if n != 0 && n%u.n == 0 {
			return strconv.FormatInt(n/u.n, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
func (b *byteSize) Type() string { return "bytes" }

var sizeUnits = []struct {
	name string
	n    int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

func (b *byteSize) Set(s string) error {
	num, unit := strings.TrimSpace(s), int64(1)
	for _, u := range sizeUnits {
		for _, name := range []string{u.name, u.name[:1] + "B", u.name[:1]} {
			if rest, ok := strings.CutSuffix(strings.ToLower(num), strings.ToLower(name)); ok && unit == 1 {
				num, unit = strings.TrimSpace(rest), u.n
			}
		}
	}
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/unit {
		return fmt.Errorf("invalid size %q (example: 64MiB)", s)
	}
	*b = byteSize(n * unit)
	return nil
}

func watchCommand() *command {
	f := &watchFlags{}
	return &command{
		name: "watch", samples: true, args: "[FLAGS] -p PID | --name PATTERN | --unit NAME | --cgroup PATH | -- CMD ARGS...",
		short: "keep the last seconds of a program, and write them when something goes wrong",
		flags: f.register,
		help: `
Nothing is written until a trigger fires or a dump is requested: 'sliver dump',
SIGUSR2 or HTTP. A dump is a recording called NAME-TIME-REASON.sliver.

Triggers take options after commas:
  threads=main|all|NAME*   of which threads (stall, slow, blocked, cpu, call)
  loop=FUNCTION            the event loop, if it is not detected (stall)
  of=process checks=3 every=1s      (cpu; memory, fds, thread-limit: checks, every)
  times=3/1m               only if it happens that often in that time
  cool=5m                  pause after it fired (1m)
Without any trigger given: --stall 5s --deadlock 5s --memory auto --crash yes.
With others, --crash yes stays; --crash no removes it.

Examples:
  sliver watch -p 1234
  sliver watch --name 'nginx' --stall 1s --dir /var/tmp/dumps
  sliver watch --unit myserver --slow 'handle_request>50ms,times=3/1m' -o .pftrace
  sliver watch -p 1234 --call 'handle_request slower=200ms,cool=5m'
  sliver watch --config /etc/sliver/watch.yaml
  sliver watch -- ./server --port 8080

A file for --config has the flags' names as keys, and triggers by kind (stall,
slow, blocked, deadlock, cpu, memory, fds, threads, call, file, io, crash):
  name: myserver
  dir: /var/lib/sliver
  triggers:
    - stall: 1s
      cool: 10m
    - slow: handle_request>50ms
      times: 3/1m
    - call: handle_request
      slower: 200ms`,
		run: f.run,
	}
}

func (f *watchFlags) run(ctx context.Context, e *env, args []string) error {
	switch d := dash(ctx); {
	case d > 0:
		return usagef("watch", "unexpected %q before --", args[0])
	case d < 0 && len(args) > 0:
		return usagef("watch", "unexpected %q; a command goes after --", args[0])
	}
	given, err := f.configure(len(args) > 0)
	if err != nil {
		return err
	}
	rules, err := f.allRules(given)
	if err != nil {
		return err
	}
	o, err := f.options(rules)
	if err != nil {
		return err
	}
	kinds := 0
	for _, is := range []bool{len(f.pids) > 0, len(f.names)+len(f.units)+len(f.cgroups) > 0, len(args) > 0} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return usagef("watch", "give one of -p PID, --name PATTERN, --unit NAME, --cgroup PATH or -- CMD ARGS...")
	}
	o.Log, err = f.logger(e)
	if err != nil {
		return err
	}
	more, err := f.symbols.sources("watch", e.stderr)
	if err != nil {
		return err
	}
	o.Session.Finder, o.Session.Cache, f.hurry = more.finder, more.cache, more.hurry
	manager := newManager(o.Log) // before a command of ours inherits its socket
	src, cmd, err := f.source(args)
	if err != nil {
		return err
	}
	defer func() {
		for _, p := range src.Fixed {
			p.Close()
		}
	}()
	if o.Name, o.Named = f.as, f.as != ""; o.Name == "" {
		o.Name = f.defaultName(src)
	}
	if o.Name = dumps.Clean(o.Name); f.as != "" && o.Name != f.as {
		return usagef("watch", "recorder: %q cannot be part of a file's name; %q can", f.as, o.Name)
	}
	err = f.serve(e, o, src, manager, cmd != nil)
	if cmd == nil {
		return err
	}
	return released(cmd, err)
}

// options returns the checked options of the Watcher.
func (f *watchFlags) options(rules []*trigger.Rule) (o watch.Options, err error) {
	bad := func(format string, args ...any) (watch.Options, error) { return o, usagef("watch", format, args...) }
	so := session.Options{Version: versionString(), Interval: f.interval, Jitter: float64(f.jitter), Groups: f.groups,
		DebugDirs: f.symbols.debugDirs, FullNames: f.symbols.fullNames, MaxOverhead: float64(f.maxOverhead)}
	switch {
	case f.interval < sampler.MinInterval || f.interval > sampler.MaxInterval:
		return bad("interval: %v is out of range; use %v to %v", f.interval, sampler.MinInterval, sampler.MaxInterval)
	case f.jitter < 0 || f.jitter > .5:
		return bad("jitter: %v is out of range; use 0%% to 50%%", &f.jitter)
	case f.groups < 1 || f.groups > 256:
		return bad("samplers: %d is out of range; use 1 to 256", f.groups)
	case f.maxOverhead < 0 || f.maxOverhead >= 1:
		return bad("max-overhead: %v is out of range; use 0%% (no bound) to 99%%", &f.maxOverhead)
	case f.maxCPU < 0:
		return bad("max-cpu: %v is negative", &f.maxCPU)
	case f.keep < 0 || f.keep > 24*time.Hour || f.keep > 0 && f.keep < time.Second:
		return bad("keep: %v is out of range; use 1s to 24h, or 0 for what fits", f.keep)
	case f.keepBytes < 1<<20 || f.keepBytes > 64<<30:
		return bad("keep-bytes: %v is out of range; use 1MiB to 64GiB", &f.keepBytes)
	case f.maxDumps < 0:
		return bad("max-dumps: %d is negative", f.maxDumps)
	case f.logFormat != "text" && f.logFormat != "json":
		return bad("log: %q is none of text, json", f.logFormat)
	}
	if err := f.checkHTTP(); err != nil {
		return o, err
	}
	if so.Selection, err = sampler.ParseSelection(f.threads); err != nil {
		return bad("%v", err)
	}
	if so.Stop, err = sampler.ParseStopPolicy(f.stop); err != nil {
		return bad("%v", err)
	}
	for _, ending := range f.outputs {
		if !strings.HasPrefix(ending, ".") {
			return bad("output: invalid file extension %q (example: .pftrace); --dir is the directory of the dumps, which get names of their own", ending)
		}
		if _, err := export.ByPath("x" + ending); err != nil {
			var known []string
			for _, f := range export.Formats() {
				known = append(known, f.Extensions...)
			}
			return bad("output: unknown file extension %q; use one of %s", ending, strings.Join(known, ", "))
		}
	}
	if err := telemetry.Address(f.metrics); err != nil && f.fs.Changed("metrics") {
		return bad("metrics: %v", err)
	}
	dir, err := filepath.Abs(f.dir)
	if err != nil {
		return o, err
	}
	if !isFolder(dir) {
		return o, fmt.Errorf("dir: %s is not a directory: create it first", dir)
	}
	o = watch.Options{Session: so, Keep: f.keep, KeepBytes: int64(f.keepBytes), Rules: rules, MemLimit: int64(f.memLimit), MaxCPU: float64(f.maxCPU),
		Store: &dumps.Store{Dir: dir, Max: f.maxDumps, MaxBytes: int64(f.maxBytes)}, Formats: f.outputs, Notify: f.notify()}
	if !f.fs.Changed("max-cpu") {
		_, o.RestCPU = watch.DefaultMaxCPU()
	}
	switch f.ringFile {
	case "none":
	case "auto":
		if o.RingDir, err = control.Dir(); err != nil {
			return o, fmt.Errorf("%w (or give --ring-file)", err)
		}
	default:
		if !isFolder(f.ringFile) {
			return o, fmt.Errorf("ring-file: %s is not a directory: create it first", f.ringFile)
		}
		o.RingDir = f.ringFile
	}
	return o, nil
}

// isFolder reports whether the user may enter the folder at path.
func isFolder(path string) (is bool) {
	caps.AsUser(func() {
		fi, err := os.Stat(path)
		is = err == nil && fi.IsDir()
	})
	return is
}

func (f *watchFlags) notify() watch.Notify {
	n := watch.Notify{Exec: f.exec, Webhook: f.webhook}
	if f.journal {
		n.Journal = notify.JournalSocket
	}
	return n
}

func (f *watchFlags) logger(e *env) (*slog.Logger, error) {
	if f.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(e.stderr, nil)), nil
	}
	return slog.New(slog.NewTextHandler(e.stderr, nil)), nil
}

// source returns the targets to watch; cmd is the command started for it.
func (f *watchFlags) source(argv []string) (s watch.Source, cmd *target.Command, err error) {
	switch {
	case len(argv) > 0:
		if cmd, err = target.Start(argv); err != nil {
			return s, nil, err
		}
		return watch.Source{Fixed: []*target.Process{cmd.Process}, Release: cmd.Release, What: argv[0]}, cmd, nil
	case len(f.pids) > 0:
		s.What = "nothing more"
		for _, pid := range f.pids {
			p, err := target.Open(pid)
			if err != nil {
				for _, p := range s.Fixed {
					p.Close()
				}
				return s, nil, explain(err)
			}
			s.Fixed = append(s.Fixed, p)
		}
		return s, nil, nil
	}
	match, what, err := matching("watch", f.names, f.units, f.cgroups)
	if err != nil {
		return s, nil, err
	}
	s.What, s.Find = "a "+strings.Join(what, " or a "), target.NewFinder(match).Find
	return s, nil, nil
}

func (f *watchFlags) defaultName(s watch.Source) string {
	switch {
	case len(f.names) > 0:
		return strings.Trim(f.names[0], "*?[]")
	case len(f.units) > 0:
		return f.units[0]
	case len(f.cgroups) > 0:
		return cmp.Or(strings.Trim(path.Base(f.cgroups[0]), "/."), "cgroup")
	}
	return fmt.Sprintf("%s-%d", s.Fixed[0].Facts().Comm, s.Fixed[0].PID())
}
