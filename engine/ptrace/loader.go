package ptrace

import (
	"sync"
	"sync/atomic"
)

// loader loads a program of the kernel beside the samples, for up to 0.1 s. It remains loaded.
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
