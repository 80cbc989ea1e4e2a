package watch

import "sync"

// maxFound bounds what an inbox holds between two looks. A rule fires once in a look.
const maxFound = 1000

// inbox passes what other goroutines find to the watching one. The zero value is empty.
type inbox[T any] struct {
	mu   sync.Mutex
	all  []T
	lost int // beyond maxFound since the last take
}

func (b *inbox[T]) put(x T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.all) >= maxFound {
		b.lost++
		return
	}
	b.all = append(b.all, x)
}

// take returns what came since the last take, and how many had no room.
func (b *inbox[T]) take() (all []T, lost int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, lost = b.all, b.lost
	b.all, b.lost = nil, 0
	return all, lost
}
