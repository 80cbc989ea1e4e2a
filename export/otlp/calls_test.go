package otlp

import (
	"reflect"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/internal/otelreceiver"
)

// TestTracedCalls: the Collector's receiver sees the profiles of the samples, also if calls were traced.
func TestTracedCalls(t *testing.T) {
	r := otelreceiver.Start(t)
	with, without := received(t, r, exporttest.Traced(t, true), view.Options{}), received(t, r, exporttest.Traced(t, false), view.Options{})
	if !reflect.DeepEqual(with, without) {
		t.Errorf("%+v\nwithout calls %+v", with, without)
	}
	for _, p := range without.Profiles {
		sum := int64(0)
		for _, s := range p.Samples {
			sum += s.Value
		}
		if sum == 0 {
			t.Errorf("%s: no sum", p.Type)
		}
	}
}
