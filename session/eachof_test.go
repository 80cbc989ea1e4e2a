package session

import (
	"errors"
	"fmt"
	"testing"
)

// TestEachOf: things are used in order, each once, and an error ends it after those before.
func TestEachOf(t *testing.T) {
	for _, n := range []int{0, 1, 7, 1000} {
		var used []int
		err := eachOf(n, func(i int) (string, error) { return fmt.Sprint(i), nil }, func(i int, x string) error {
			if x != fmt.Sprint(i) {
				t.Errorf("%q for %d", x, i)
			}
			used = append(used, i)
			return nil
		})
		if err != nil || len(used) != n {
			t.Fatalf("%d of %d used, %v", len(used), n, err)
		}
		for i, x := range used {
			if x != i {
				t.Fatalf("%d used in place %d", x, i)
			}
		}
	}
	broken := errors.New("broken")
	for _, at := range []int{0, 3, 500} {
		used := 0
		use := func(int, int) error { used++; return nil }
		if err := eachOf(1000, func(i int) (int, error) {
			if i >= at {
				return 0, fmt.Errorf("%w: %d", broken, i)
			}
			return i, nil
		}, use); !errors.Is(err, broken) || err.Error() != fmt.Sprintf("broken: %d", at) || used != at {
			t.Errorf("%v after %d, want %d", err, used, at)
		}
		if err := eachOf(1000, func(i int) (int, error) { return i, nil }, func(i, _ int) error {
			if i == at {
				return broken
			}
			return nil
		}); !errors.Is(err, broken) {
			t.Errorf("an error of use: %v", err)
		}
	}
}
