package session

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// phases is the trace of what sliver itself does for one recording: one span
// from beginning to end, and one below it for each phase.
type phases struct {
	tracer oteltrace.Tracer
	ctx    context.Context
	root   oteltrace.Span
}

func newPhases(tracer oteltrace.Tracer, pid int) *phases {
	if tracer == nil {
		tracer = noop.NewTracerProvider().Tracer("")
	}
	p := &phases{tracer: tracer}
	p.ctx, p.root = tracer.Start(context.Background(), "record", oteltrace.WithAttributes(attribute.Int("process.pid", pid)))
	return p
}

// begin starts a phase; what it returns ends it, and hands err through.
func (p *phases) begin(name string, attrs ...attribute.KeyValue) func(err error) error {
	_, span := p.tracer.Start(p.ctx, name, oteltrace.WithAttributes(attrs...))
	return func(err error) error {
		endSpan(span, err)
		return err
	}
}

// was notes a phase that is over.
func (p *phases) was(name string, from, to time.Time) {
	_, span := p.tracer.Start(p.ctx, name, oteltrace.WithTimestamp(from))
	span.End(oteltrace.WithTimestamp(to))
}

// end ends the whole; a second call does nothing.
func (p *phases) end(err error) { endSpan(p.root, err) }

func endSpan(s oteltrace.Span, err error) {
	if err != nil {
		s.RecordError(err)
		s.SetStatus(codes.Error, err.Error())
	}
	s.End()
}

// Account is what sliver says of itself while it records.
type Account struct {
	At      stack.Time
	Threads int // sampled now
	Roles   []sampler.RoleAccount
	Pauses  stack.Pauses
	Load    trace.Load
	SelfCPU int64 // ns since sampling began
}

// Account is for any goroutine, from New until Finish or Close, after which it
// stays as it was.
func (s *Session) Account() Account {
	s.accountMu.Lock()
	defer s.accountMu.Unlock()
	if s.last != nil {
		return *s.last
	}
	st := s.stats()
	return Account{At: st.At, Threads: s.smp.Threads(), Roles: s.smp.Roles(), Pauses: st.Pause, Load: s.recorder.Load(), SelfCPU: st.SelfCPU}
}

// settleAccount keeps the accounts as they are now for who asks later.
func (s *Session) settleAccount() {
	a := s.Account()
	s.accountMu.Lock()
	defer s.accountMu.Unlock()
	if s.last == nil {
		s.last = &a
	}
}

// FirstSample is how long it took from New to the first sample; 0: there was none.
func (s *Session) FirstSample() time.Duration {
	if at := s.smp.First(); at > 0 {
		return time.Duration(at - s.opened)
	}
	return 0
}
