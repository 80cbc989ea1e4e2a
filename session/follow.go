package session

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/trace"
)

// The functions below are for watching or controlling a running recording. They may be
// called from any goroutine, from New until Close.

// Recorder returns the recorder of the samples: live readers take cursors on its
// threads' rings.
func (s *Session) Recorder() *trace.Recorder { return s.recorder }

// Process returns the recording's description of its target.
func (s *Session) Process() trace.Process { return s.recorder.Process() }

// Dir is the folder of the recording.
func (s *Session) Dir() string { return filepath.Dir(s.part) }

// Names resolves names while the recording grows, nil without Options.Live.
func (s *Session) Names() *naming.Live { return s.names }

// Wait describes event.Wait.
func (s *Session) Wait(id int) (trace.Wait, bool) { return s.waits.lookup(id) }

// Pause suspends sampling until Resume; the target continues to run.
func (s *Session) Pause() { s.smp.Pause() }

// Resume ends a Pause.
func (s *Session) Resume() { s.smp.Resume() }

// Paused reports whether sampling is paused.
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

// Selection returns which threads are recorded.
func (s *Session) Selection() *sampler.Selection { return s.smp.Selection() }

// ErrOver reports that the recording no longer exists.
var ErrOver = errors.New("the recording no longer exists")

// Snapshot opens the recording so far, or the finished recording, with its names. It is
// readable until release is called. Naming takes as long as at the end of a recording.
func (s *Session) Snapshot() (rec *trace.Recording, release func(), err error) {
	return s.Window(0)
}

// Window is Snapshot limited to data about the time after from: its cost depends on the
// window, not on the time before.
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

func (s *Session) finder() symbol.Finder { return live.Finder(s.proc, s.o.DebugDirs, s.o.Finder) }

func (s *Session) newLiveNames() *naming.Live {
	return naming.NewLive(s.mods, naming.LiveOptions{Finder: s.finder(), FullNames: s.o.FullNames, Cache: s.o.Cache, Arch: runtime.GOARCH,
		Made:    live.Made(s.proc, func() *live.Target { return s.live }, s.o.FullNames),
		Managed: func(addr uint64) (symbol.Frame, bool) { return s.runtimes.Find(addr) }})
}
