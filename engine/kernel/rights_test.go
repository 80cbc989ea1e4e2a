package kernel

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestExplain: a refusal without a known reason names the likely ones and how to get the right, and never passes on
// the library's advice.
func TestExplain(t *testing.T) {
	memlock := fmt.Errorf("map create: %w (MEMLOCK may be too low, consider rlimit.RemoveMemlock)", unix.EPERM)
	hidden := fmt.Errorf("load program: %w: unknown func bpf_probe_read_kernel#113", unix.EINVAL)
	const none, integrity, confidentiality = "[none] integrity confidentiality\n", "none [integrity] confidentiality\n", "none integrity [confidentiality]\n"
	for _, c := range []struct {
		err      error
		lockdown string
		limited  bool
		want     string
	}{
		{memlock, "", false, "seccomp filter"},
		{memlock, none, false, "seccomp filter"},
		{memlock, integrity, false, "seccomp filter"},
		{memlock, none, true, "raise ulimit -l"},
		{memlock, confidentiality, false, "lockdown=integrity"},
		{hidden, confidentiality, false, "lockdown=integrity"},
		{fmt.Errorf("attach: %w", unix.EACCES), "", false, "seccomp filter"},
	} {
		got := explainOn(c.err, c.lockdown, c.limited)
		if !errors.Is(got, ErrDenied) || !Refused(got) || !strings.Contains(got.Error(), c.want) || strings.Contains(got.Error(), "MEMLOCK") {
			t.Errorf("%v, %q, %v: %v", c.err, c.lockdown, c.limited, got)
		}
	}
	for _, err := range []error{hidden, unix.ENOSPC, fmt.Errorf("%w; missing: CAP_BPF", ErrRights), ErrTypes} {
		if got := explainOn(err, none, false); !errors.Is(got, err) || errors.Is(got, ErrDenied) {
			t.Errorf("%v: %v", err, got)
		}
	}
}
