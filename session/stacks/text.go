package stacks

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/graph"
	"github.com/sliverprof/sliver/wait/kind"
)

// WriteText writes the snapshot for people, in the style of jstack: each thread with its state,
// its wait and its stack, then deadlocks and convoys.
func (s *Snapshot) WriteText(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "PID %d (%s), %s, %s\n", s.PID, plain(s.Comm), plural.Of(len(s.Threads), "thread"),
		s.Time.Format("2006-01-02 15:04:05.000 MST"))
	for i := range s.Threads {
		s.thread(b, &s.Threads[i])
	}
	for _, d := range s.Deadlocks {
		s.deadlock(b, &d)
	}
	for _, c := range s.Convoys {
		s.convoy(b, &c)
	}
	s.goroutines(b)
	return b.Flush()
}

// plain replaces control characters in strings of the target: names of threads and files may
// contain any bytes, and a terminal would interpret them.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

func (s *Snapshot) thread(b *bufio.Writer, t *Thread) {
	// The kernel keeps only the beginning of a name.
	if name := t.called(); strings.HasPrefix(name, t.Name) {
		fmt.Fprintf(b, "\n%q TID %d, ", plain(name), t.TID)
	} else {
		fmt.Fprintf(b, "\n%q TID %d, called %q, ", plain(t.Name), t.TID, plain(name))
	}
	if t.Carries != "" {
		fmt.Fprintf(b, "carries %s, ", plain(t.Carries))
	}
	b.WriteString(t.State.String())
	if t.CPU >= 0 {
		fmt.Fprintf(b, ", %v of CPU", time.Duration(t.CPU).Round(time.Millisecond))
	}
	b.WriteByte('\n')
	if t.Wait != nil {
		s.wait(b, t.Wait)
	}
	s.frames(b, t.Frames, t.Truncated)
}

func (s *Snapshot) wait(b *bufio.Writer, w *wait.Info) {
	switch {
	case w.Call != "":
		fmt.Fprintf(b, "    in %s(%s)\n", w.Call, plain(w.Args))
	case w.Kind == kind.WaitMemory:
		b.WriteString("    in a page fault\n")
	}
	if l := w.Lock; l != nil {
		fmt.Fprintf(b, "    waits for %s\n", plain(l.String()))
		fmt.Fprintf(b, "    %s\n", s.holder(l))
	}
	if w.Why != "" {
		fmt.Fprintf(b, "    not known: %s\n", plain(w.Why))
	}
}

// holder describes the lock's holder in a sentence.
func (s *Snapshot) holder(l *wait.Lock) string {
	h := l.Holder
	if h.TID == 0 {
		return "holder: " + plain(h.Why)
	}
	who := fmt.Sprintf("held by TID %d", h.TID)
	if l.Kind == "join" {
		who = fmt.Sprintf("which is TID %d", h.TID)
	}
	if t := s.Thread(h.TID); t != nil && t.Name != "" {
		who += fmt.Sprintf(" %q", plain(t.called()))
	} else if l.Other != "" {
		who = "held by " + plain(l.Other)
	}
	if h.By == event.KnownByInferred {
		return who + ", inferred"
	}
	return who + " (known by: " + h.By.String() + ")"
}

func (s *Snapshot) frames(b *bufio.Writer, fs []Frame, cut stack.Reason) {
	shown, hidden := make([]*Frame, 0, len(fs)), 0
	if s.Natives || s.Full {
		for i := range fs {
			shown = append(shown, &fs[i])
		}
	} else {
		shown, hidden = visible(fs)
	}
	if s.Full {
		for _, f := range shown {
			s.frame(b, f)
		}
	} else {
		for _, l := range fold(shown) {
			if l.more == 0 {
				s.frame(b, l.frame)
				continue
			}
			var names []string
			for _, f := range l.of {
				names = append(names, plain(f.Func))
			}
			fmt.Fprintf(b, "      … %d more of %s\n", l.more, strings.Join(names, ", "))
		}
	}
	switch {
	case cut == stack.ReasonNone:
	case len(fs) == 0 && cut == stack.ReasonEmpty:
		b.WriteString("      the stack could not be read\n")
	default:
		fmt.Fprintf(b, "      the stack goes on: %s\n", cut)
	}
	if hidden > 0 {
		fmt.Fprintf(b, "      … %s of the interpreter not shown (--full)\n", plural.Of(hidden, "native frame"))
	}
}

func (s *Snapshot) frame(b *bufio.Writer, f *Frame) {
	if f.Kind == stack.KindError {
		fmt.Fprintf(b, "      ... frames are missing here: %s\n", plain(f.Func))
		return
	}
	b.WriteString("      ")
	if s.Addresses {
		fmt.Fprintf(b, "%#16x ", f.Addr)
	}
	switch {
	case f.Inlined:
		b.WriteString(plain(f.Func) + " (inlined)")
	case f.Func != "" && (f.NoOffset || !s.Addresses):
		b.WriteString(plain(f.Func))
	case f.Func != "":
		fmt.Fprintf(b, "%s+%#x", plain(f.Func), f.Offset)
	case s.Addresses:
		b.WriteString("??")
	default:
		fmt.Fprintf(b, "?? at %#x", f.Addr) // nothing else identifies it
	}
	if f.File != "" {
		file := f.File
		if !s.Full {
			file = short(file, s.Dir)
		}
		b.WriteString(" at " + plain(file))
		if f.Line > 0 { // a native method of Java has none
			fmt.Fprintf(b, ":%d", f.Line)
		}
	}
	if tag := f.Kind.Tag(); tag != "" {
		b.WriteString(" (" + tag + ")")
	}
	if f.Module != "" {
		fmt.Fprintf(b, " (%s)", plain(path.Base(f.Module)))
	}
	if f.Trust == stack.TrustScan || f.Trust == stack.TrustFP {
		fmt.Fprintf(b, " [by %s]", f.Trust)
	}
	b.WriteByte('\n')
}

// called returns the name by which the program's author knows the thread.
func (t *Thread) called() string {
	if t.OwnName != "" {
		return t.OwnName
	}
	return t.Name
}

// name returns "TID 12 \"worker\"", with the process if it is another one.
func (s *Snapshot) name(t *graph.Thread) string {
	n := fmt.Sprintf("TID %d", t.TID)
	if t.PID != s.PID {
		return n + fmt.Sprintf(" of PID %d", t.PID)
	}
	if th := s.Thread(t.TID); th != nil && th.Name != "" {
		n += fmt.Sprintf(" %q", plain(th.called()))
	}
	return n
}

func (s *Snapshot) deadlock(b *bufio.Writer, d *graph.Deadlock) {
	fmt.Fprintf(b, "\nDEADLOCK of %s", plural.Of(len(d.Threads), "thread"))
	if d.Timed {
		b.WriteString(", one of which will give up in time")
	}
	b.WriteByte('\n')
	for i := range d.Threads {
		t, next := &d.Threads[i], &d.Threads[(i+1)%len(d.Threads)]
		fmt.Fprintf(b, "    %s waits for %s, held by %s\n", s.name(t), plain(t.Info.Lock.String()), s.name(next))
	}
}

// maxListed is how many waiters of a convoy are listed.
const maxListed = 16

func (s *Snapshot) convoy(b *bufio.Writer, c *graph.Convoy) {
	fmt.Fprintf(b, "\nCONVOY of %s behind %s\n", plural.Of(len(c.Waiters), "thread"), plain(c.Lock.String()))
	fmt.Fprintf(b, "    %s\n", s.holder(c.Lock))
	if t := s.Thread(c.Lock.Holder.TID); t != nil {
		s.frames(b, t.Frames, t.Truncated)
	}
	b.WriteString("    waiting:")
	for i := range c.Waiters {
		if i == maxListed {
			fmt.Fprintf(b, " and %d more", len(c.Waiters)-i)
			break
		}
		fmt.Fprintf(b, " %d", c.Waiters[i].TID)
	}
	b.WriteByte('\n')
}
