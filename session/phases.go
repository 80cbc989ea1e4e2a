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

// phases traces the work of sliver for one recording: one span for the whole, and a
// child span for each phase.
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

// begin starts a phase; the returned function ends it and returns err unchanged.
func (p *phases) begin(name string, attrs ...attribute.KeyValue) func(err error) error {
	_, span := p.tracer.Start(p.ctx, name, oteltrace.WithAttributes(attrs...))
	return func(err error) error {
		endSpan(span, err)
		return err
	}
}

// was records a completed phase.
func (p *phases) was(name string, from, to time.Time) {
	_, span := p.tracer.Start(p.ctx, name, oteltrace.WithTimestamp(from))
	span.End(oteltrace.WithTimestamp(to))
}

// end ends the root span; a second call does nothing.
func (p *phases) end(err error) { endSpan(p.root, err) }

func endSpan(s oteltrace.Span, err error) {
	if err != nil {
		s.RecordError(err)
		s.SetStatus(codes.Error, err.Error())
	}
	s.End()
}

// Account is the recorder's own state and cost while it records.
type Account struct {
	At      stack.Time
	Threads int // sampled now
	Roles   []sampler.RoleAccount
	Pauses  stack.Pauses
	Load    trace.Load
	SelfCPU int64 // ns since sampling began
}

// Account may be called from any goroutine, from New until Finish or Close. After that
// its result no longer changes.
func (s *Session) Account() Account {
	s.accountMu.Lock()
	defer s.accountMu.Unlock()
	if s.last != nil {
		return *s.last
	}
	st := s.stats()
	return Account{At: st.At, Threads: s.smp.Threads(), Roles: s.smp.Roles(), Pauses: st.Pause, Load: s.recorder.Load(), SelfCPU: st.SelfCPU}
}

// settleAccount stores the current state for later calls of Account.
func (s *Session) settleAccount() {
	if s.member != nil {
		return // only that of the first process is published
	}
	a := s.Account()
	s.accountMu.Lock()
	defer s.accountMu.Unlock()
	if s.last == nil {
		s.last = &a
	}
}

// FirstSample is the time from New to the first sample; 0: there was none.
func (s *Session) FirstSample() time.Duration {
	if at := s.smp.First(); at > 0 {
		return time.Duration(at - s.opened)
	}
	return 0
}
