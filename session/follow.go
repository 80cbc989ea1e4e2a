package session

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sliverprof/sliver/naming"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/trace"
)

// What follows is for whoever watches or controls a recording under way. It may
// be called from any goroutine, from New until Close.

// Recorder is what the samples go through: live readers take cursors on its
// threads' rings.
func (s *Session) Recorder() *trace.Recorder { return s.recorder }

// Process is what the recording says of its target.
func (s *Session) Process() trace.Process { return s.recorder.Process() }

// Dir is the folder that the recording is in.
func (s *Session) Dir() string { return filepath.Dir(s.part) }

// Names finds names while the recording grows, nil without Options.Live.
func (s *Session) Names() *naming.Live { return s.names }

// Wait describes event.Wait.
func (s *Session) Wait(id int) (trace.Wait, bool) { return s.waits.lookup(id) }

// Pause holds the sampling until Resume; the target runs on.
func (s *Session) Pause() { s.smp.Pause() }

// Resume goes on after Pause.
func (s *Session) Resume() { s.smp.Resume() }

// Paused reports whether Pause holds the sampling.
func (s *Session) Paused() bool { return s.smp.Paused() }

// SetInterval changes the time between two samples of a thread.
func (s *Session) SetInterval(d time.Duration) error { return s.smp.SetInterval(d) }

// Interval is the time between two samples of a thread.
func (s *Session) Interval() time.Duration { return s.smp.Interval() }

// SetSelection changes which threads are recorded, from now on.
func (s *Session) SetSelection(sel *sampler.Selection) error {
	err := s.smp.SetSelection(sel)
	if errors.Is(err, sampler.ErrNoThreads) {
		return fmt.Errorf("no thread matches %q", sel)
	}
	return err
}

// Selection says which threads are recorded.
func (s *Session) Selection() *sampler.Selection { return s.smp.Selection() }

// ErrOver says that there is no recording any more.
var ErrOver = errors.New("the recording is no longer there")

// Snapshot opens what is recorded so far, or the finished recording, with its
// names. It can be read until release is called. Naming takes a while, like at
// the end of a recording.
func (s *Session) Snapshot() (rec *trace.Recording, release func(), err error) {
	return s.Window(0)
}

// Window is Snapshot with what says something of the time from from on alone:
// it costs what the window does, not what came before.
func (s *Session) Window(from stack.Time) (rec *trace.Recording, release func(), err error) {
	s.fileMu.Lock()
	f := s.temp
	if f == nil || s.closing {
		s.fileMu.Unlock()
		return nil, nil, ErrOver
	}
	s.readers.Add(1)
	growing := s.rec
	s.fileMu.Unlock()
	defer func() {
		if err != nil {
			s.readers.Done()
		}
	}()
	if growing == nil {
		rec, err = openRecording(f)
	} else {
		s.jit.look(false)
		s.runtimes.Tell()
		var size int64
		if size, err = growing.Flush(); err == nil {
			rec, err = trace.Open(f, size)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if from > 0 {
		rec = rec.Since(from)
	}
	if rec.Symbols == nil {
		rec.Symbols, _ = naming.Symbols(rec, s.mods, s.namingOptions(rec.Captured))
		rec.Named = true
	}
	return rec, s.readers.Done, nil
}

func (s *Session) namingOptions(captured []trace.Captured) naming.Options {
	return naming.Options{Finder: s.finder(), FullNames: s.o.FullNames, Captured: captured, Cache: s.o.Cache}
}

// finder looks for debug files where the target sees them, and where we do.
func (s *Session) finder() symbol.Finder {
	root := fmt.Sprintf("/proc/%d/root", s.proc.PID())
	if !s.proc.Alive() {
		root = ""
	}
	dirs := symbol.Dirs{Root: root, Extra: s.o.DebugDirs}
	if s.o.Finder != nil {
		return symbol.Finders{dirs, s.o.Finder}
	}
	return dirs
}

func (s *Session) newLiveNames() *naming.Live {
	return naming.NewLive(s.mods, naming.LiveOptions{Finder: s.finder(), FullNames: s.o.FullNames, Cache: s.o.Cache, Arch: runtime.GOARCH,
		PerfMap: naming.PerfMapOf(s.proc.PerfMap),
		Objects: func() []*symbol.JITObject { return s.live.GDBObjects(s.o.FullNames) },
		Managed: func(addr uint64) (symbol.Frame, bool) { return s.runtimes.Find(addr) }})
}
