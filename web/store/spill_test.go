package store_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/sliverprof/sliver/web/store"
)

// Slices that no file can store stay in memory, up to its limit.
func TestOverflowThatCannotBe(t *testing.T) {
	in := filepath.Join(t.TempDir(), "a file")
	if err := os.WriteFile(in, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	st := store.New(0)
	st.Overflow(in, 2000)
	plain, _, _ := loaded(t, 7, 5000)
	loadedInto(t, st, 7, 5000)
	if n, err := st.InFile(); n != 0 || err == nil {
		t.Errorf("%d slices are in a folder that cannot be, error %v", n, err)
	}
	if st.Held() != plain.Held() || st.Dropped() != 0 {
		t.Errorf("%d slices are held, %d dropped, want %d", st.Held(), st.Dropped(), plain.Held())
	}
}

// Dropping the oldest includes slices in the file, and the rest is unchanged.
func TestDropFromFile(t *testing.T) {
	st := store.New(0)
	st.Overflow(t.TempDir(), 1000)
	_, th, _ := loadedInto(t, st, 7, 20_000)
	plain, same, _ := loaded(t, 7, 20_000)
	from, to := st.Span()
	middle := from + (to-from)/2
	before, _ := st.InFile()
	st.DropBefore(middle)
	plain.DropBefore(middle)
	after, err := st.InFile()
	if err != nil || after >= before || before == 0 {
		t.Errorf("%d slices in the file, then %d: %v", before, after, err)
	}
	if st.Held() != plain.Held() || st.Dropped() != plain.Dropped() || st.Dropped() == 0 {
		t.Errorf("held %d, dropped %d; want %d and %d", st.Held(), st.Dropped(), plain.Held(), plain.Dropped())
	}
	var p, q store.Position
	a, b := th.View(middle, to, 1, nil, &p), same.View(middle, to, 1, nil, &q)
	if !reflect.DeepEqual(a, b) {
		t.Error("what is left differs from a store without a file")
	}
}

// A thread that is removed leaves nothing behind, neither in memory nor in the file.
func TestRemoveThread(t *testing.T) {
	st := store.New(0)
	st.Overflow(t.TempDir(), 1000)
	loadedInto(t, st, 7, 20_000)
	held := st.Held()
	if in, err := st.InFile(); in == 0 || err != nil {
		t.Fatalf("%d slices in the file: %v", in, err)
	}
	st.Remove(99) // not a thread of the store
	for _, in := range st.Infos() {
		st.Remove(in.Seq)
		if st.Lookup(in.Seq) != nil {
			t.Errorf("thread %d is still there", in.Seq)
		}
	}
	if in, _ := st.InFile(); in != 0 || st.Held() != 0 || int(st.Dropped()) != held || len(st.Infos()) != 0 {
		t.Errorf("%d slices in the file, %d held, %d dropped of %d, %d threads", in, st.Held(), st.Dropped(), held, len(st.Infos()))
	}
}
