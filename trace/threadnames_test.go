package trace

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// TestThreadNames: a recording keeps the names of a thread over time, also when it is rewritten, and one without
// times keeps the newest name.
func TestThreadNames(t *testing.T) {
	var file bytes.Buffer
	w, err := NewWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRecorder(w, Process{PID: 42}, 64, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Thread(Thread{TID: 7, Name: "a", Since: 100})
	r.Thread(Thread{TID: 8, Name: "other", Since: 100})
	for _, n := range []ThreadName{{"b", 200}, {"b", 250}, {"c", 300}, {"a", 290}} { // two places may see names
		r.Renamed(7, n.Name, n.From)
	}
	r.Renamed(9, "nothing", 300)
	if _, err := r.Close(Stats{At: 400}, End{At: 400}); err != nil {
		t.Fatal(err)
	}
	want := []ThreadName{{"a", 0}, {"b", 200}, {"a", 300}} // "c" was for no time
	rec := open(t, file.Bytes())
	if len(rec.Threads) != 2 || !slices.Equal(rec.Threads[0].Names(), want) || rec.Threads[0].Name != "a" || rec.Threads[0].Since != 100 {
		t.Fatalf("%+v", rec.Threads)
	}
	if n := rec.Threads[1].Names(); len(n) != 1 || n[0] != (ThreadName{"other", 0}) {
		t.Errorf("%v", n)
	}

	file.Reset()
	if w, err = NewWriter(&file); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{w.Process(Process{}), w.Thread(rec.Threads[0]), w.Thread(Thread{TID: 8, Seq: 1, Name: "old"}), w.Thread(Thread{TID: 8, Seq: 1, Name: "new"})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	rec = open(t, file.Bytes())
	if len(rec.Threads) != 2 || !slices.Equal(rec.Threads[0].Names(), want) {
		t.Errorf("rewritten: %+v", rec.Threads)
	}
	if n := rec.Threads[1].Names(); len(n) != 1 || n[0].Name != "new" {
		t.Errorf("without times: %v", n)
	}

	th := Thread{Name: "0"}
	for i := range 2 * MaxThreadNames {
		th.Rename(fmt.Sprint(i+1), stack.Time(i+1))
	}
	if n := th.Names(); len(n) != MaxThreadNames || n[len(n)-1].Name != tooManyNames || n[len(n)-2].Name != fmt.Sprint(MaxThreadNames-2) {
		t.Errorf("%d names, the last %v", len(n), n[len(n)-2:])
	}
}
