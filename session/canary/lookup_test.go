package canary

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
)

// lookups runs a scenario of c/lookups, and returns the findings and what the program measured.
func lookups(t *testing.T, p *testprog.Proc, rule string) (all []*iowatch.Finding, s *seen, longest time.Duration) {
	t.Helper()
	p.Ready()
	s = watch(t, p.PID, rule)
	p.Go()
	var ns int64
	if _, err := fmt.Sscanf(p.Line("truth "), "truth %d", &ns); err != nil {
		t.Fatal(err)
	}
	p.Done()
	s.end(t)
	return s.Engine.Findings(), s, time.Duration(ns)
}

const lookupLimit = 300 * time.Millisecond

// judgeLookup compares findings with what the program measured, from outside the kernel.
func judgeLookup(t *testing.T, what string, all []*iowatch.Finding, longest, delay time.Duration, server string) {
	t.Helper()
	if fired := len(all) > 0; fired != (delay > lookupLimit) && !(fired && longest > lookupLimit) {
		t.Errorf("%s, answer after %v, the program measured %v: %d findings", what, delay, longest, len(all))
	}
	for _, f := range all {
		if f.Path != server || f.Host != "late.example.org" || f.Count != 1 || f.Longer < int64(lookupLimit) || f.Longer > int64(longest)+int64(time.Millisecond) ||
			!strings.Contains(f.Advice(), "A lookup of late.example.org at the name server "+server+" took ") {
			t.Errorf("%s: %+v: %s; the program measured %v", what, f, f.Advice(), longest)
		}
	}
}

// TestLookups asks a name server that answers in time, and one that does not, by every call that a resolver
// may use.
func TestLookups(t *testing.T) {
	testprog.Whole(t, "TestStaticLookup has the lookup that is hardest to see")
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "gcc", "ptrace")
	prog := testprog.Build(t, "c/lookups", "O2")
	for host, delay := range map[string]time.Duration{"127.99.8.1": 100 * time.Millisecond, "127.99.8.2": 310 * time.Millisecond} {
		testprog.NameServer(t, host+":53", delay)
		for _, how := range []string{"sendto", "sendmsg", "write", "writev", "batch", "batches", "kept", "tcp", "fast"} {
			all, s, longest := lookups(t, testprog.Start(t, prog, how, "late.example.org", host), "dns slow=300ms")
			judgeLookup(t, how, all, longest, delay, host+":53")
			for _, f := range all {
				if got := s.stackOf(f.Where); !strings.Contains(got, "asking main ") {
					t.Errorf("%s at %s", how, got)
				}
			}
		}
	}
	// The answer is there and is not read.
	all, _, _ := lookups(t, testprog.Start(t, prog, "mute", "late.example.org", "127.99.8.2"), "dns slow=300ms")
	if len(all) != 1 || all[0].Count != 0 || !strings.Contains(all[0].Advice(), "gave no answer about late.example.org for ") {
		t.Errorf("%+v", all)
	}
}

// TestStaticLookup: the resolver of a static musl program is in no library.
func TestStaticLookup(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace", "musl-gcc", "unshare")
	prog, unshare := testprog.Build(t, "c/lookups", "musl-static"), testprog.Tool(t, "unshare")
	if os.Geteuid() != 0 {
		t.Skip("needs root for a resolv.conf of its own")
	}
	for host, delay := range map[string]time.Duration{"127.99.8.3": 100 * time.Millisecond, "127.99.8.4": 310 * time.Millisecond} {
		testprog.NameServer(t, host+":53", delay)
		conf := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(conf, []byte("nameserver "+host+"\noptions timeout:20\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		p := testprog.Start(t, unshare, "-m", "sh", "-c", `mount --bind "$1" /etc/resolv.conf && exec "$2" libc late.example.org`, "sh", conf, prog)
		all, _, longest := lookups(t, p, "dns slow=300ms")
		judgeLookup(t, "musl", all, longest, delay, host+":53")
	}
}
