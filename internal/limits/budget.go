package limits

import (
	"fmt"
	"runtime"
	"sync"
	"time"
)

// A Budget limits memory for one purpose, such as a target's file. Taking from a budget
// also takes from its parent.
type Budget struct {
	of    string
	most  int64
	above *Budget

	mu   *sync.Mutex
	used *int64
}

// shareOfMemory: one part in shareOfMemory of the process's memory is for data of foreign
// files and traces.
const shareOfMemory = 2

// leastBudget is the minimum budget, whatever the limit is.
const leastBudget = 64 << 20

// Process returns the budget of the whole process.
var Process = sync.OnceValue(func() *Budget {
	n, name := Memory()
	return &Budget{of: fmt.Sprintf("all files and traces together (half of %s, %d MiB)", name, n>>20), most: max(n/shareOfMemory, leastBudget),
		mu: new(sync.Mutex), used: new(int64)}
})

// New returns a child budget for a file or trace: most bytes, or half of b if that is
// less. Close returns the memory taken; the garbage collector does the same for an
// unreachable budget.
func (b *Budget) New(of string, most int64) *Budget {
	n := &Budget{of: of, most: min(most, b.most/2), above: b, mu: new(sync.Mutex), used: new(int64)}
	type rest struct {
		mu    *sync.Mutex
		used  *int64
		above *Budget
	}
	runtime.AddCleanup(n, func(r rest) {
		r.mu.Lock()
		left := *r.used
		*r.used = 0
		r.mu.Unlock()
		r.above.Give(left)
	}, rest{n.mu, n.used, b})
	return n
}

// Most returns the maximum in bytes.
func (b *Budget) Most() int64 { return b.most }

// Used returns how many bytes are taken.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return *b.used
}

// An Error reports that a request exceeds a budget.
type Error struct {
	Asked, Most int64
	Of          string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%d bytes of memory are wanted, more than is left of the %d MiB for %s", e.Asked, e.Most>>20, e.Of)
}

// Take takes n bytes, before they are allocated. A nil Budget permits everything.
func (b *Budget) Take(n int64) error {
	if b == nil || n == 0 {
		return nil
	}
	err := b.take(n)
	if err == nil || n < 0 || n > b.most {
		return err
	}
	// Unreachable budgets may not have been collected yet.
	for range collections {
		runtime.GC()
		time.Sleep(time.Millisecond)
		if err = b.take(n); err == nil {
			return nil
		}
	}
	return err
}

// collections is how often garbage is collected before a budget rejects a request.
const collections = 2

func (b *Budget) take(n int64) error {
	b.mu.Lock()
	if n < 0 || n > b.most-*b.used {
		b.mu.Unlock()
		return &Error{n, b.most, b.of}
	}
	*b.used += n
	b.mu.Unlock()
	if b.above == nil {
		return nil
	}
	err := b.above.take(n)
	if err != nil {
		b.mu.Lock()
		*b.used -= n
		b.mu.Unlock()
	}
	return err
}

// Give returns n bytes to the budget.
func (b *Budget) Give(n int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	n = min(n, *b.used)
	*b.used -= n
	b.mu.Unlock()
	if b.above != nil {
		b.above.Give(n)
	}
}

// Close returns all bytes.
func (b *Budget) Close() {
	if b != nil {
		b.Give(b.Used())
	}
}
