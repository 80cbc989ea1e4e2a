package ptrace

import (
	"sync"
	"sync/atomic"
)

// loader has a program of the kernel that is loaded beside the samples, since that takes up to 0.1 s. It remains loaded.
type loader[T any] struct {
	once sync.Once
	done atomic.Pointer[loaded[T]]
}

type loaded[T any] struct {
	of  T
	err error
}

// get returns what load gave, nil until it has: the first call starts it.
func (l *loader[T]) get(load func() (T, error)) *loaded[T] {
	l.once.Do(func() {
		go func() {
			of, err := load()
			l.done.Store(&loaded[T]{of, err})
		}()
	})
	return l.done.Load()
}
