package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
)

// TestIOSlowDNS looks a name up at a name server that answers late, and at one that does not.
func TestIOSlowDNS(t *testing.T) {
	testprog.Whole(t, "TestStaticLookup of package canary has the rule")
	testprog.Need(t, "ptrace", "unshare")
	getent, err := exec.LookPath("getent")
	if err != nil || os.Geteuid() != 0 {
		t.Skipf("needs root and getent: %v", err)
	}
	for at, after := range map[string]time.Duration{"127.99.7.1": 1500 * time.Millisecond, "127.99.7.2": 0} {
		testprog.NameServer(t, at+":53", after)
		dir := t.TempDir()
		conf := filepath.Join(dir, "resolv.conf")
		if err := os.WriteFile(conf, []byte("nameserver "+at+"\noptions timeout:20\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		r := found(t, dir, "", []string{"--rule", "dns slow=1s"}, testprog.Tool(t, "unshare"), "-m", "sh", "-c",
			`mount --bind "$1" /etc/resolv.conf && exec "$2" ahosts late.example.org`, "sh", conf, getent)
		if fires := after > 0; len(r.Findings) > 0 != fires {
			t.Errorf("%v: %+v", after, r.Findings)
		} else if fires {
			f := r.has(t, iowatch.DNS, at+":53")
			if f.Longest < int64(after)*9/10 || !strings.Contains(f.Advice, "A lookup of late.example.org at the name server "+at+":53 took 1.") || !in(f.Where+f.Stack, "getaddrinfo") {
				t.Errorf("%+v", f)
			}
		}
	}
}
