package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/heap/hprof"
)

// hprofFlags are the common flags of all actions of sliver hprof.
type hprofFlags struct {
	output, rule, to, temp string
	strings, constants     bool
	names                  bool
	partial, json          bool
}

// hprofAction is one subcommand of sliver hprof.
type hprofAction struct {
	name   string
	writes bool     // needs an output
	flags  []string // in addition to the common ones
	run    func(f *hprofFlags, w io.Writer, in *hprofInput) error
}

func hprofActions() []hprofAction {
	return []hprofAction{
		{name: "info", flags: []string{"json"}},
		{name: "check", flags: []string{"json"}},
		{name: "strip", writes: true, flags: []string{"rule", "keep-strings", "redact-constants"},
			run: func(f *hprofFlags, w io.Writer, in *hprofInput) error {
				return hprof.Strip(w, in.src, hprof.StripOptions{Rule: hprof.Rule(f.rule), KeepStrings: f.strings, RedactConstants: f.constants, Temp: f.temp})
			}},
		{name: "fill", writes: true,
			run: func(_ *hprofFlags, w io.Writer, in *hprofInput) error { return hprof.Fill(w, in.src) }},
		{name: "convert", writes: true, flags: []string{"to", "class-names"},
			run: func(f *hprofFlags, w io.Writer, in *hprofInput) error {
				return hprof.Convert(w, in.src, hprof.ConvertOptions{To: hprof.Form(f.to), ClassNames: f.names, Temp: f.temp})
			}},
		{name: "pack", writes: true,
			run: func(_ *hprofFlags, w io.Writer, in *hprofInput) error { return hprof.Pack(w, in.src) }},
		{name: "unpack", writes: true,
			run: func(_ *hprofFlags, w io.Writer, in *hprofInput) error {
				if in.how != hprof.Packed {
					return hprof.ErrPacked
				}
				_, err := io.CopyBuffer(struct{ io.Writer }{w}, in.src, make([]byte, 256<<10))
				return err
			}},
		{name: "copy", writes: true,
			run: func(_ *hprofFlags, w io.Writer, in *hprofInput) error { return hprof.Copy(w, in.src) }},
	}
}

func hprofNames() []string {
	var names []string
	for _, a := range hprofActions() {
		names = append(names, a.name)
	}
	return names
}

func hprofCommand() *command {
	f := &hprofFlags{}
	var set *pflag.FlagSet
	return &command{
		name: "hprof", files: true, args: strings.Join(hprofNames(), "|") + " FILE [-o OUT]", short: "read, check, strip and pack Java heap dumps",
		words: hprofNames,
		flags: func(fs *pflag.FlagSet) {
			set = fs
			fs.StringVarP(&f.output, "output", "o", "", "output file; - is standard output, .gz and .zst compress")
			fs.StringVar(&f.rule, "rule", "", "of strip: shark (values of primitive arrays become ? and 0, the size stays),\nmatrix (primitive arrays but strings are removed),\nkoom (values and system heaps are removed; fill puts zeros there)")
			fs.BoolVar(&f.strings, "keep-strings", false, "of strip: leave the values of strings as they are")
			fs.BoolVar(&f.constants, "redact-constants", false, "of strip: overwrite string records that are not names,\nwhich of a JVM have the constants of its code")
			fs.StringVar(&f.to, "to", "", "of convert: hotspot or art (default: the other form)")
			fs.BoolVar(&f.names, "class-names", false, "of convert to hotspot: rewrite java.lang.String[] to [Ljava/lang/String;")
			fs.BoolVar(&f.partial, "partial", false, "use the part of a damaged dump before the damage")
			fs.BoolVar(&f.json, "json", false, "of info and check: print JSON")
			fs.StringVar(&f.temp, "temp", "", "directory for temporary files (default: the system's)")
		},
		help: `
FILE is a heap dump in the HPROF format of HotSpot or Android, also compressed by
gzip, zstd, bzip2 or pack; - is standard input. Memory stays below 64 MB for any dump.

  info     what the dump consists of
  check    whether it can be read, and whether its parts agree
  strip    remove contents by the rule of Shark, Matrix or KOOM
  fill     put zeros where strip --rule koom, or KOOM itself, left gaps
  convert  from Android's form to HotSpot's, as hprof-conv does, and back
  pack     about half of what gzip makes of it, without loss
  unpack   the dump again
  copy     write it again, byte for byte: to compress, or with --partial

Examples:
  sliver hprof info app.hprof.gz
  sliver hprof strip app.hprof --rule shark -o stripped.hprof
  ssh host cat /tmp/app.hprof | sliver hprof strip - --rule koom -o - | zstd > small.zst`,
		run: func(_ context.Context, e *env, args []string) error { return runHprof(e, f, set, args) },
	}
}

func runHprof(e *env, f *hprofFlags, set *pflag.FlagSet, args []string) error {
	if len(args) == 0 {
		return usagef("hprof", "say what to do: %s", strings.Join(hprofNames(), ", "))
	}
	i := slices.IndexFunc(hprofActions(), func(a hprofAction) bool { return a.name == args[0] })
	if i < 0 {
		return usagef("hprof", "unknown action %q; use one of %s", args[0], strings.Join(hprofNames(), ", "))
	}
	a := hprofActions()[i]
	if len(args) != 2 {
		return usagef("hprof", "%s takes one file", a.name)
	}
	var wrong error
	set.Visit(func(g *pflag.Flag) {
		switch {
		case slices.Contains([]string{"partial", "temp", "help"}, g.Name) || slices.Contains(a.flags, g.Name) || a.writes && g.Name == "output":
		case wrong == nil:
			wrong = usagef("hprof", "%s has no --%s", a.name, g.Name)
		}
	})
	if wrong != nil {
		return wrong
	}
	if a.name == "strip" && !slices.Contains([]string{"shark", "matrix", "koom"}, f.rule) {
		if f.rule == "" {
			return usagef("hprof", "strip needs --rule shark, matrix or koom")
		}
		return usagef("hprof", "unknown rule %q; there are: shark, matrix, koom", f.rule)
	}
	// Buffers and compression tables live long, and there is little garbage.
	debug.SetGCPercent(10)
	if a.name == "convert" && !slices.Contains([]string{"", "hotspot", "art"}, f.to) {
		return usagef("hprof", "unknown form %q; there are: hotspot, art", f.to)
	}
	in, err := openHprof(e, args[1], f)
	if err != nil {
		return err
	}
	defer in.close()
	switch {
	case a.name == "info":
		err = in.info(e, f.json)
	case a.name == "check":
		err = in.check(e, f)
	default:
		err = in.write(e, &a, f)
	}
	return in.explain(err)
}

// hprofInput is a dump to read.
type hprofInput struct {
	path   string // as given
	name   string // for messages
	src    io.Reader
	how    hprof.Compression
	file   *hprof.File // with --partial
	stream *os.File
	damage *hprof.Error // with --partial: where the dump ends
}

func openHprof(e *env, path string, f *hprofFlags) (*hprofInput, error) {
	in := &hprofInput{path: path, name: path}
	if path == "-" {
		in.name = "standard input"
	}
	fail := func(err error) (*hprofInput, error) {
		in.close()
		return nil, fmt.Errorf("cannot read %s: %w", in.name, plainPath(err))
	}
	if f.partial {
		from := path
		if path == "-" {
			from = "/dev/stdin"
		}
		file, err := hprof.Open(from, f.temp)
		if err != nil {
			return fail(err)
		}
		in.file, in.how = file, file.Compression
		s, err := hprof.Salvage(file, file.Size())
		if err != nil {
			return fail(err)
		}
		in.src, in.damage = s, s.Damage
		if in.damage != nil {
			fmt.Fprintf(e.stderr, "sliver: %s: %s: using only the part before the damage\n", in.name, oneLine(in.damage))
		}
		return in, nil
	}
	in.stream = e.stdin
	if path != "-" {
		file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOCTTY, 0)
		if err != nil {
			return fail(err)
		}
		in.stream = file
	}
	var err error
	if in.src, in.how, err = hprof.Decompress(in.stream); err != nil {
		return fail(err)
	}
	if info, err := in.stream.Stat(); err == nil && info.Mode().IsRegular() && in.how == hprof.Plain {
		at, err := in.stream.Seek(0, io.SeekCurrent)
		if path != "-" {
			at, err = 0, nil
		}
		if err == nil && path != "-" {
			in.src = io.NewSectionReader(in.stream, at, info.Size()-at)
		}
	}
	return in, nil
}

func (in *hprofInput) close() {
	if in.file != nil {
		in.file.Close()
	}
	if in.stream != nil && in.path != "-" {
		in.stream.Close()
	}
}

// plainPath removes the part that os adds to an error that already names the file.
func plainPath(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// explain states the origin of an error and suggests a remedy.
func (in *hprofInput) explain(err error) error {
	if err == nil {
		return nil
	}
	var damage *hprof.Error
	var usage *usageError
	switch {
	case errors.As(err, &usage):
		return err
	case errors.Is(err, hprof.ErrNotCut):
		return fmt.Errorf("%s: %w", in.name, hprof.ErrNotCut)
	case errors.As(err, &damage) && in.looksCut():
		return fmt.Errorf("%s: KOOM's strip left gaps: 'sliver hprof fill' first", in.name)
	}
	return fmt.Errorf("%s: %w", in.name, err)
}

// looksCut reports whether an unreadable file may be a dump cut by KOOM.
func (in *hprofInput) looksCut() bool {
	if in.path == "-" {
		return false
	}
	f, err := os.OpenFile(in.path, os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	src, _, err := hprof.Decompress(f)
	return err == nil && hprof.LooksCut(src)
}

// write writes the output of an action to standard output, or to a file that gets its
// name only when it is complete.
func (in *hprofInput) write(e *env, a *hprofAction, f *hprofFlags) (err error) {
	if f.output == "" {
		return usagef("hprof", "%s needs -o: a file, or - for standard output", a.name)
	}
	if f.output == "-" {
		if isTerminal(e.stdout.File) {
			return usagef("hprof", "standard output is a terminal: name a file with -o")
		}
		return a.run(f, e.stdout, in)
	}
	out, err := hprof.Create(f.output)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.output, plainPath(err))
	}
	if err = a.run(f, out, in); err != nil {
		out.Abort()
		return err
	}
	if err = out.Close(); err != nil {
		return fmt.Errorf("cannot write %s: %w", f.output, plainPath(err))
	}
	return nil
}

func (in *hprofInput) info(e *env, asJSON bool) error {
	infos, err := hprof.ReadInfo(in.src)
	if infos == nil {
		return err
	}
	if asJSON {
		return errors.Join(err, in.json(e, infos, nil, err))
	}
	in.print(e, infos)
	return err
}

func (in *hprofInput) check(e *env, f *hprofFlags) error {
	infos, findings, err := hprof.Check(in.src, f.temp)
	if infos == nil {
		return err
	}
	if f.json {
		if e := in.json(e, infos, findings, err); e != nil {
			return e
		}
	} else {
		for _, i := range infos {
			o := i.Objects()
			fmt.Fprintf(e.stdout, "%s: HPROF %s, %d-byte identifiers: %s objects, %s classes\n", in.name, i.Version, i.IDSize, thousands(o.Count), thousands(i.Subs[hprof.SubClass].Count))
		}
		for _, g := range findings {
			times := ""
			if g.Count > 1 {
				times = fmt.Sprintf(" (%s times)", thousands(g.Count))
			}
			fmt.Fprintf(e.stdout, "%s: offset %d: %s%s\n", in.name, g.Offset, printable(g.What), times)
		}
	}
	switch {
	case err != nil:
		return err
	case len(findings) > 0:
		return exitStatus(exitFailed)
	}
	return nil
}

func (in *hprofInput) json(e *env, infos []*hprof.Info, findings []hprof.Finding, err error) error {
	doc := hprofDocument(in, infos)
	if findings != nil {
		doc.Findings = findings
	}
	if err != nil {
		doc.Error = err.Error()
	}
	enc := json.NewEncoder(e.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}
