package session

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/internal/outfile"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// Result describes a finished recording.
type Result struct {
	Reason string
	// Exit is how the process ended; nil: it did not, or that is not known.
	Exit *trace.Exit
	// Duration is from the first tick to the last: every output shows this one.
	Duration time.Duration
	// Asked is Options.Duration, 0 if there was none.
	Asked time.Duration
	// Releasing is the time from the last tick until no thread was stopped or traced.
	Releasing time.Duration
	// Writing is the duration of Finish.
	Writing time.Duration
	// Interval is the chosen interval.
	Interval time.Duration
	// Cost is the cost to the target, and the measures taken to bound it.
	Cost sampler.Cost
	// Untaken is the number of selected threads without a sample when sampling ended.
	Untaken int
	// FirstSample is the time from New to the first sample; 0: none.
	FirstSample time.Duration
	Stats       trace.Stats
	Threads     int
	// Calls are the accounts of traced functions; nil: none were traced.
	Calls *Calls
	// IO are the accounts of I/O; nil: it was not recorded.
	IO *trace.IO
	// Switches are the accounts of context switches; nil: they were not to be recorded.
	Switches *trace.Switches
	// Tasks counts the tasks that could not be read.
	Tasks trace.LostTasks
	// Children is the CPU time of processes that the target started and waited for
	// during the recording. They are not in the recording.
	Children time.Duration
	Files    []export.File
	Problems []string // causes of missing names; the files are complete
	// CPU is the CPU time of the process: see trace.End.
	CPU int64
	// Processes are the recorded ones, this Session's own first, in the order in which they
	// were taken up; nil: the recording is of one process. Left are the others.
	Processes []Recorded
	LeftOut   trace.LeftOut
	// Left is the path of the recording that remains if the outputs could not be written; "" if there is none.
	// Complete reports whether that recording has its end and its names.
	Left     string
	Complete bool
}

// Finish writes the statistics and the names, and then the outputs. Call it after Run
// returned. On an error the recording remains in Result.Left.
func (s *Session) Finish(reason string) (res *Result, err error) {
	defer func() { s.phases.end(err) }()
	if s.family != nil {
		s.family.close()
	}
	st := s.stats()
	began, released := s.smp.Began(), st.At
	st.At = max(s.smp.Ended(), began)
	if began == 0 { // no tick came
		began = st.At
	}
	res = &Result{Reason: reason, Exit: s.exit(reason), Duration: time.Duration(st.At - began), Releasing: time.Duration(max(released-st.At, 0)), Threads: len(st.Threads), Tasks: s.tasks.left(), FirstSample: s.FirstSample(),
		Children: time.Duration(max(0, s.childrenCPU()-s.children)),
		Asked:    s.o.Duration, Untaken: s.smp.Untaken(), Interval: s.smp.Interval()}
	if s.member == nil { // that of all processes is the first one's
		res.Cost = s.smp.Cost(s.smp.Ended())
	}
	if s.traced != nil {
		res.Calls = s.traced.account()
	}
	if s.io != nil {
		res.IO = s.io.last
	}
	if s.switches != nil {
		s.switches.end()
		res.Switches = s.switches.last
	}
	if s.family != nil {
		res.Releasing = 0 // the names of other processes were looked up since
	}
	finishing := time.Now()
	defer func() { res.Writing = time.Since(finishing) }()
	s.runtimes.Close()
	s.jit.settle()
	s.mods.settle()
	s.waits.settle()
	s.mods.jitDump()
	s.fileMu.Lock()
	rec := s.rec
	s.rec = nil
	s.fileMu.Unlock()
	res.CPU = s.spent()
	if s.family != nil {
		s.family.account(res, rec)
	}
	res.Stats, err = rec.Close(st, trace.End{At: st.At, Reason: reason, Gone: s.gone(reason), CPU: res.CPU, Exit: res.Exit})
	s.settleAccount()
	if s.family != nil {
		addStats(&res.Stats, &s.family.stats)
		res.Threads = len(res.Stats.Threads)
	}
	if err != nil {
		return s.salvage(res, writeError(err))
	}
	if s.section != nil && !s.section.Written() {
		return res, nil // no events, so it is not in the file
	}
	if s.member != nil {
		s.member.unnamed(s)
		return res, nil
	}
	if s.family != nil {
		background.CollectLater(nameMemory)
	}
	named := s.phases.begin("symbolize")
	all, problems, err := s.addNames()
	res.Problems = append(res.Problems, problems...)
	if named(err) != nil {
		return s.salvage(res, err)
	}
	if s.family != nil {
		s.family.named.Store(true)
		s.family.forget()
	}
	res.Duration = time.Duration(all.to - all.from)
	shown, err := s.shown()
	if err != nil {
		return s.keep(res), err
	}
	var failed []error
	for _, o := range s.o.Outputs {
		exported := s.phases.begin("export", attribute.String("sliver.format", o.Format.Name))
		var files []export.File
		if o.Format.Recording() {
			files, err = s.place(o)
		} else {
			files, err = export.Write(o, shown, export.Options{Kernel: s.o.Kernel, Idle: s.o.Idle, Lines: s.o.Lines})
		}
		res.Files = append(res.Files, files...)
		if exported(err) != nil {
			failed = append(failed, err) // the others are still written
		}
	}
	if len(failed) > 0 {
		return s.keep(res), errors.Join(failed...)
	}
	return res, nil
}

// nameMemory is how much more garbage, in bytes, there may be while the names of several processes are looked up: most
// recordings end before a collection, which takes 10 to 25 ms.
const nameMemory = 48 << 20

// childrenCPU returns the CPU time in ns of the target's children. The first process of several has all of it.
func (s *Session) childrenCPU() int64 {
	if s.member != nil {
		return 0
	}
	return s.proc.ChildrenCPU()
}

// shown opens the finished recording for the outputs other than recordings; nil: there are none. To open a
// recording of many short processes takes as long as to name it.
func (s *Session) shown() (*trace.Recording, error) {
	if !slices.ContainsFunc(s.o.Outputs, func(o export.Output) bool { return !o.Format.Recording() }) {
		return nil, nil
	}
	rec, err := openRecording(s.temp)
	if err == nil && s.o.Kinds != 0 {
		rec = rec.Only(s.o.Kinds)
	}
	return rec, err
}

// Exit returns how the process ended; nil: it did not, or that is not known. For a Follower's Ended.
func (s *Session) Exit() *trace.Exit {
	if s.proc.Alive() {
		return nil
	}
	return s.exit(targetEnded)
}

// exit returns how the process ended; nil: it did not, or that is not known.
func (s *Session) exit(reason string) *trace.Exit {
	if s.life == nil {
		return nil
	}
	// Its last thread may not be seen to end before the kernel has a status.
	for try := 0; !s.life.Ended(); try++ {
		if reason != targetEnded || s.proc.Alive() || try == exitTries {
			return nil
		}
		time.Sleep(exitEvery)
	}
	e, ok := s.life.Ending()
	switch {
	case !ok:
		return nil
	case e.Signal != 0:
		return &trace.Exit{Signal: target.SignalName(e.Signal), Core: e.Core}
	}
	return &trace.Exit{Status: e.Status}
}

// How long exit waits for the end of a process that has no running thread.
const (
	exitTries = 10
	exitEvery = 2 * time.Millisecond
)

// gone returns when the process ended, if it is one of several; 0: unknown.
func (s *Session) gone(reason string) stack.Time {
	of := s
	if s.member != nil {
		of = s.member.s
	}
	if of.family == nil {
		return 0
	}
	return of.o.Set.Gone(s.proc.PID(), s.born, s.member != nil && reason == targetEnded)
}

// spent returns trace.End.CPU. That of a selection of threads is the sum of theirs.
func (s *Session) spent() int64 {
	of := s
	if s.member != nil {
		of = s.member.s
	}
	if of.family == nil {
		return 0
	}
	ns := of.o.Set.CPU(s.proc.PID(), s.born)
	if !s.smp.Selection().All() {
		return 0
	}
	return ns
}

// salvage makes the outputs from a recording that could not be completed, such as on a
// full disk. It skips outputs in the folder of the recording, and keeps the recording
// itself unchanged.
func (s *Session) salvage(res *Result, cause error) (*Result, error) {
	rec, err := openRecording(s.temp)
	if err != nil {
		return s.keep(res), cause
	}
	if rec.Symbols == nil && len(rec.Others) == 0 {
		rec.Symbols, res.Problems = naming.Symbols(rec, s.mods, s.namingOptions(rec.Captured))
		rec.Named = true
	}
	shown := rec
	if s.o.Kinds != 0 {
		shown = rec.Only(s.o.Kinds)
	}
	for _, o := range s.o.Outputs {
		if final := o.Final(); final != "" && filepath.Dir(final) == filepath.Dir(s.part) {
			continue
		}
		var files []export.File
		if o.Format.Recording() {
			files, err = copyNamed(o, rec, res.Reason)
		} else {
			files, err = export.Write(o, shown, export.Options{Kernel: s.o.Kernel, Idle: s.o.Idle, Lines: s.o.Lines})
		}
		res.Files = append(res.Files, files...)
		if err != nil {
			cause = errors.Join(cause, err)
		}
	}
	if s.family == nil && len(rec.Others) == 0 && rec.End == nil {
		s.complete(res, rec)
	}
	return s.keep(res), cause
}

// complete adds the end and the names to the recording of one process, in its file.
func (s *Session) complete(res *Result, rec *trace.Recording) {
	end := trace.End{Reason: diskFull, CPU: res.CPU, Exit: res.Exit}
	rec, err := trace.Complete(s.temp, rec, res.Stats, end, func(rec *trace.Recording) *trace.Symbols {
		sym, _ := naming.Symbols(rec, s.mods, s.namingOptions(rec.Captured))
		return sym
	})
	res.Complete = err == nil
	from, to := rec.Span()
	res.Duration = time.Duration(to - from)
}

// diskFull is the reason of a recording that ended because its file could not be written.
const diskFull = "the file could not be written"

// copyNamed writes an unfinished recording to o, and adds names and an end.
func copyNamed(o export.Output, rec *trace.Recording, reason string) ([]export.File, error) {
	return export.WriteRecording(o, func(w io.Writer) error { return trace.Cut(w, rec, trace.Part{Reason: reason}) })
}

// keep keeps the growing file and its path.
func (s *Session) keep(res *Result) *Result {
	s.fileMu.Lock()
	f := s.temp
	s.temp = nil
	s.fileMu.Unlock()
	if f != nil {
		s.readers.Wait()
		if !s.placed {
			res.Left = s.leaveAt()
		}
		f.Close()
	}
	return res
}

// abandonWithin bounds how long Abandon waits for the lock of the recording.
const abandonWithin = 100 * time.Millisecond

// Abandon is for a program that is about to exit during a recording or Finish. It
// flushes the samples recorded so far, if that is possible at once, and returns the
// path of the unfinished recording, whose chunks are complete. "" if there is none.
func (s *Session) Abandon() (path string) {
	done := make(chan string, 1)
	go func() {
		s.fileMu.Lock()
		rec, f := s.rec, s.temp
		s.fileMu.Unlock()
		if rec != nil {
			_, _ = rec.Flush()
		}
		if f == nil {
			done <- ""
			return
		}
		done <- s.leaveAt()
	}()
	select {
	case path = <-done:
		return path
	case <-time.After(abandonWithin):
		return s.part
	}
}

// leaveAt gives an unfinished recording the name of the first output that is a
// recording, in the same folder. Without one, it gets the name of the first output there with the
// ending .sliver, if no file has it.
func (s *Session) leaveAt() string {
	if s.placed {
		return s.part
	}
	beside := ""
	for _, o := range s.o.Outputs {
		final := o.Final()
		switch {
		case final == "" || filepath.Dir(final) != filepath.Dir(s.part):
		case o.Format.Recording():
			if os.Rename(s.part, final) == nil {
				return final
			}
			return s.part
		case beside == "":
			beside = export.RecordingName(final)
		}
	}
	if beside != "" && os.Link(s.part, beside) == nil {
		os.Remove(s.part)
		return beside
	}
	return s.part
}

// addNames resolves everything that the recording visited and appends it. It returns the time of all processes.
func (s *Session) addNames() (all span, problems []string, err error) {
	var rec *trace.Recording
	if s.section != nil {
		rec, err = s.section.Open()
	} else {
		rec, err = openRecording(s.temp)
	}
	if err != nil {
		return all, nil, err
	}
	all.from, all.to = rec.Span()
	o := s.namingOptions(rec.Captured)
	if s.family != nil {
		others, err := s.family.addNames(rec, s.mods, &o, &all)
		if err != nil {
			return all, others, err
		}
		problems = others
	}
	sym, own := naming.Symbols(rec, s.mods, o)
	problems = distinct(append(append(append(own, problems...), s.jit.problems()...), s.runtimes.Problems()...))
	if s.section != nil {
		return all, problems, s.section.Writer().Symbols(sym)
	}
	if _, err := s.temp.Seek(0, io.SeekEnd); err != nil {
		return all, nil, writeError(err)
	}
	if err := trace.AppendSymbols(s.temp, sym); err != nil {
		return all, nil, writeError(err)
	}
	return all, problems, nil
}

func openRecording(f *os.File) (*trace.Recording, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return trace.Open(f, fi.Size())
}

// place gives the finished recording its name. The first output gets the file itself,
// further ones get a copy.
func (s *Session) place(o export.Output) ([]export.File, error) {
	fi, err := s.temp.Stat()
	if err != nil {
		return nil, err
	}
	file := export.File{Path: o.Path, Format: "sliver", Bytes: fi.Size()}
	if final := o.Final(); final != "" && !s.placed && filepath.Dir(final) == filepath.Dir(s.part) {
		if err := outfile.Place(s.temp, final); err != nil {
			return nil, err
		}
		s.part, s.placed = final, true
		return []export.File{file}, nil
	}
	return []export.File{file}, copyTo(o.Path, s.temp, fi.Size())
}

// copyTo writes the first size bytes of a recording to path.
func copyTo(path string, f *os.File, size int64) error {
	_, err := outfile.Atomic(path, func(w io.Writer) error {
		_, err := io.Copy(w, io.NewSectionReader(f, 0, size))
		return err
	})
	return err
}

// maxOutputName limits the program's name in a file's name, in characters of up to 4 bytes: names of
// files have at most 255 bytes.
const maxOutputName = 50

// DefaultOutput returns the name of a recording of a process at a time.
func DefaultOutput(comm string, pid int, at time.Time) string {
	comm = strings.Map(func(r rune) rune {
		// Characters with no special meaning to a terminal or a shell.
		if unicode.IsLetter(r) && r != utf8.RuneError || unicode.IsDigit(r) || strings.ContainsRune("-._+@:", r) {
			return r
		}
		return '_'
	}, comm)
	if r := []rune(comm); len(r) > maxOutputName {
		comm = string(r[:maxOutputName])
	}
	return fmt.Sprintf("%s-%d-%s.sliver", strings.TrimLeft(comm, "-."), pid, at.Format("20060102-150405"))
}

// Share is the part of the threads' observed time in which they were stopped.
func Share(t stack.ThreadStats) float64 {
	if t.SpanNS <= 0 {
		return 0
	}
	return float64(t.PauseNS) / float64(t.SpanNS)
}

// writeError wraps an error of writing the recording. It leaves out the file's name, which is a hidden one.
func writeError(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("the disk is full: %w", err)
	}
	return fmt.Errorf("write the recording: %w", err)
}
