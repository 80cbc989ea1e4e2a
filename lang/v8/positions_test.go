package v8

import (
	"encoding/hex"
	"testing"
)

// TestPlaces decodes a table that Node 18 made of optimized code, and compares the first entries
// with those of V8's own reader.
func TestPlaces(t *testing.T) {
	b, err := hex.DecodeString("03980451a8848080205d83015d48213c8101230f5f1793818080101bbb81808010191043635da483808020")
	if err != nil {
		t.Fatal(err)
	}
	list := places(b)
	for _, p := range list {
		off, id := text(p.pos)
		t.Log(p.from, off, id)
	}
	if len(list) < 8 || list[0].from != 0 {
		t.Fatalf("%d places: %v", len(list), list)
	}
	if off, id := text(list[0].pos); off != 133 || id != 0 {
		t.Errorf("the first place is %d in %d", off, id)
	}
}
