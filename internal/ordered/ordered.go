// Package ordered lets several goroutines work on numbered parts of something, and joins what they found in the order
// of the numbers.
package ordered

import (
	"context"
	"sync"
)

// Each calls work with the numbers from 0 to n-1, by several goroutines, each with a batch of its own. merge receives
// each batch with its number, one after another in the order of the numbers, and empties it: it is used again. The first
// error ends the calls and is returned.
func Each[Batch any](ctx context.Context, workers, n int, work func(i int, b *Batch) error, merge func(i int, b *Batch)) error {
	var mu sync.Mutex
	var failed error
	turn := sync.NewCond(&mu) // the next batch to merge is another one
	next, merged := 0, 0
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			var batch Batch
			for {
				mu.Lock()
				i := next
				next++
				stop := failed != nil || i >= n
				mu.Unlock()
				if stop {
					return
				}
				err := ctx.Err()
				if err == nil {
					err = work(i, &batch)
				}
				mu.Lock()
				for merged != i {
					turn.Wait()
				}
				if failed == nil {
					failed = err
				}
				if failed == nil {
					merge(i, &batch)
				}
				merged++
				turn.Broadcast()
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return failed
}
