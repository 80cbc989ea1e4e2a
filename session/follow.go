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

// Pause suspends sampling until Resume; the target continues to run. This and the other controls are for all
// processes of a recording of several, also later ones.
func (s *Session) Pause() {
	s.smp.Pause()
	if s.family != nil {
		s.family.each(func(m *Session) { m.smp.Pause() })
	}
}

// Resume ends a Pause.
func (s *Session) Resume() {
	s.smp.Resume()
	if s.family != nil {
		s.family.each(func(m *Session) { m.smp.Resume() })
	}
}

// Paused reports whether sampling is paused.
func (s *Session) Paused() bool { return s.smp.Paused() }

// SetInterval changes the time between two samples of a thread.
func (s *Session) SetInterval(d time.Duration) error {
	err := s.smp.SetInterval(d)
	if err == nil && s.family != nil {
		s.family.each(func(m *Session) { _ = m.smp.SetInterval(d) })
	}
	return err
}

// Interval is the time between two samples of a thread.
func (s *Session) Interval() time.Duration { return s.smp.Interval() }

// SetSelection changes which threads are recorded, from now on. Of several processes, it is enough that it
// matches a thread of one.
func (s *Session) SetSelection(sel *sampler.Selection) error {
	var err error
	if s.family != nil {
		err = s.family.choose(sel)
	} else {
		err = s.smp.SetSelection(sel)
	}
	if errors.Is(err, sampler.ErrNoThreads) {
		return fmt.Errorf("no thread matches %q", sel)
	}
	return err
}

// Selection returns which threads are recorded.
func (s *Session) Selection() *sampler.Selection { return s.smp.Selection() }

// Left returns the processes of the Set that are left out so far; nil for a recording of one process.
func (s *Session) Left() *trace.LeftOut {
	if s.o.Set == nil {
		return nil
	}
	l := s.o.Set.Left()
	return &l
}

// Follower learns of the processes of a recording of several. Each has a Session, whose methods for watching a
// running recording may be called between Joined and Ended. Methods are called from any goroutine.
type Follower interface {
	// Joined is called before the first sample of a process beside the first one.
	Joined(*Session)
	// Ended is called when no more samples of a process will come; gone: the process has ended. For the first
	// process it is called only if the recording goes on.
	Ended(s *Session, gone bool)
	Renamed(s *Session, tid stack.TID, name string)
}

// ErrOver reports that the recording no longer exists.
var ErrOver = errors.New("the recording no longer exists")

// Snapshot opens the recording so far, or the finished recording, with its names. It is
// readable until release is called. Naming takes as long as at the end of a recording.
func (s *Session) Snapshot() (rec *trace.Recording, release func(), err error) {
	return s.Window(0)
}

// Windows yields what Window returns in recordings of at most most processes each, which are valid until yield
// returns. Processes that cannot be read are left out; their errors are returned.
func (s *Session) Windows(from stack.Time, most int, yield func(*trace.Recording)) (failed []error) {
	if f := s.family; f != nil && !f.named.Load() {
		if err := s.hold(); err != nil {
			return []error{err}
		}
		defer s.readers.Done()
		return f.windows(from, most, yield)
	}
	rec, release, err := s.Window(from)
	if err != nil {
		return []error{err}
	}
	defer release()
	yield(rec)
	return nil
}

// Size returns the length of the growing file in bytes, and how many processes are in it.
func (s *Session) Size() (bytes int64, processes int) {
	if s.family != nil {
		return s.family.sections.Size()
	}
	return s.recorder.Load().Bytes, 1
}

// hold keeps the file open until s.readers.Done.
func (s *Session) hold() error {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	if s.temp == nil || s.closing {
		return ErrOver
	}
	s.readers.Add(1)
	return nil
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
	switch {
	case s.family != nil && !s.family.named.Load():
		if rec, err = s.family.window(from); err == nil {
			return rec, s.readers.Done, nil
		}
	case growing == nil:
		rec, err = openRecording(f)
	default:
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
		rec = rec.AllSince(from)
	}
	if rec.Symbols == nil && len(rec.Others) == 0 {
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
	var files *naming.LiveFiles
	switch {
	case s.member != nil:
		files = s.member.liveFiles
	case s.family != nil:
		files = s.family.liveFiles
	}
	return naming.NewLive(s.mods, naming.LiveOptions{Files: files, Finder: s.finder(), FullNames: s.o.FullNames, Cache: s.o.Cache, Arch: runtime.GOARCH,
		Made:    live.Made(s.proc, func() *live.Target { return s.live }, s.o.FullNames),
		Managed: func(addr uint64) (symbol.Frame, bool) { return s.runtimes.Find(addr) }})
}
