package methods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sliverprof/sliver/heap/hotspot"
	"github.com/sliverprof/sliver/heap/snapshot"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// Runtime is the title of the language whose virtual machine traces methods.
var Runtime = Kind.Title()

// Kind is that of its methods' frames.
const Kind = stack.KindJava

const (
	// MinJava is the first version of Java whose JFR traces methods (JEP 520).
	MinJava = 25
	// lifetime is how long a recording of JFR lasts that is not ended: what a kill -9 of this program leaves.
	lifetime = 60 * time.Second
	// maxSize bounds the bytes that JFR keeps of one recording.
	maxSize = 256 << 20
	// startLimit bounds how long the virtual machine may take to begin its first recording. Under load it takes ten seconds.
	startLimit = time.Minute
	// answerLimit bounds how long the virtual machine may take for a command.
	answerLimit = 30 * time.Second
	// settingsFile is JFR's choice of events.
	settingsFile = "settings.jfc"
)

// ErrOld says that a process has no virtual machine that traces methods.
var ErrOld = errors.New("exact calls of Java methods need HotSpot of Java 25 or later (JFR method tracing); 'sliver record' samples them")

// version returns the first number of the version of Java that VM.version shows; 0: unknown.
func version(answer string) int {
	_, rest, _ := strings.Cut(answer, "\nJDK ")
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		rest = rest[:end]
	}
	n, err := strconv.Atoi(rest)
	if err != nil {
		return 0
	}
	return n
}

// Check returns nil if the process's virtual machine can trace methods.
func Check(ctx context.Context, p *target.Process) error {
	answer, err := snapshot.Attachable(ctx, p)
	var not *hotspot.UnsupportedError
	switch {
	case errors.As(err, &not) || errors.Is(err, snapshot.ErrNoJVM):
		return ErrOld
	case err != nil:
		return err
	}
	if n := version(answer); n < MinJava {
		return fmt.Errorf("process %d runs Java %d: %w", p.PID(), n, ErrOld)
	}
	return nil
}

// flight is JFR of one virtual machine, as far as this program uses it.
type flight struct {
	p     *target.Process
	place *target.Workplace
	id    string
	n     int // recordings that were started

	once sync.Once
	err  error // of close
}

// openFlight makes a folder for files. close removes it.
func openFlight(p *target.Process) (*flight, error) {
	place, err := p.NewWorkplace()
	if err != nil {
		return nil, err
	}
	return &flight{p: p, place: place, id: fmt.Sprintf("sliver-%d-%d", os.Getpid(), time.Now().UnixNano())}, nil
}

// close removes the folder. It may be called again, and from any goroutine.
func (f *flight) close() error {
	f.once.Do(func() { f.err = f.place.Close() })
	return f.err
}

// settings are a file of JFR's that chooses exact calls of the filters' methods, and nothing else. It goes around the
// bound of 1,024 bytes that a command has.
func settings(fs []filter) []byte {
	var names []string
	for _, x := range fs {
		names = append(names, x.String())
	}
	text := strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(strings.Join(names, ";"))
	return []byte(`<?xml version="1.0" encoding="UTF-8"?>
<configuration version="2.0">
  <event name="` + eventCall + `">
    <setting name="enabled">true</setting>
    <setting name="threshold">0 ns</setting>
    <setting name="stackTrace">false</setting>
    <setting name="filter">` + text + `</setting>
  </event>
  <event name="` + eventLoss + `">
    <setting name="enabled">true</setting>
  </event>
</configuration>
`)
}

// recording is one of JFR's. It writes its file when it is stopped, when its lifetime is over, or when the process ends.
type recording struct {
	name, file string
}

// next names a recording.
func (f *flight) next() recording {
	f.n++
	return recording{name: fmt.Sprintf("%s-%d", f.id, f.n), file: fmt.Sprintf("%d.jfr", f.n)}
}

// start begins a recording.
func (f *flight) start(ctx context.Context, r recording, fs []filter) error {
	_ = f.place.Remove(settingsFile)
	if err := f.place.Write(settingsFile, settings(fs)); err != nil {
		return err
	}
	_, err := f.p.JavaCommand(ctx, fmt.Sprintf("JFR.start name=%s settings=%s/%s filename=%s/%s duration=%ds maxsize=%dM dumponexit=true",
		r.name, f.place.Path, settingsFile, f.place.Path, r.file, lifetime/time.Second, maxSize>>20))
	if err != nil && strings.Contains(err.Error(), "Unknown diagnostic command") {
		err = fmt.Errorf("the Java runtime of process %d has no Flight Recorder (module jdk.jfr), which traces methods", f.p.PID())
	}
	return err
}

// stop ends a recording, which then writes its file.
func (f *flight) stop(ctx context.Context, r recording) error {
	_, err := f.p.JavaCommand(ctx, "JFR.stop name="+r.name)
	return err
}

// drop ends a recording without its calls.
func (f *flight) drop(ctx context.Context, r recording) error {
	_, err := f.p.JavaCommand(ctx, "JFR.stop name="+r.name+" filename=/dev/null")
	return err
}

// others reports whether recordings of other users of JFR are running.
func (f *flight) others(ctx context.Context) bool {
	answer, err := f.p.JavaCommand(ctx, "JFR.check")
	return err == nil && strings.Contains(answer, "(running)")
}
