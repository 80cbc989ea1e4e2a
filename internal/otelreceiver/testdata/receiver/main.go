// Command receiver runs the OpenTelemetry Collector's own OTLP receiver at the address in
// its argument, and prints each batch of profiles that it receives as a line of JSON. It
// is a separate module, so that sliver does not depend on the Collector.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/xreceiver"
	"go.uber.org/zap"
)

// Batch is one line of output.
type Batch struct {
	Resource map[string]any
	Profiles []Profile
}

// Profile is one profile of a batch.
type Profile struct {
	Type, Unit string
	Time       uint64
	Duration   uint64
	Samples    []Sample
}

// Sample is a sample with its stack, leaf first. Inlined calls are separate frames, each
// as "function file:line module".
type Sample struct {
	Stack []string
	Attrs map[string]any
	Value int64
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "receiver:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx := context.Background()
	f := otlpreceiver.NewFactory()
	cfg := f.CreateDefaultConfig()
	conf := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{"http": map[string]any{"endpoint": os.Args[1]}}})
	if err := conf.Unmarshal(cfg); err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	sink, err := xconsumer.NewProfiles(func(_ context.Context, p pprofile.Profiles) error {
		mu.Lock()
		defer mu.Unlock()
		for _, b := range batches(p) {
			if err := out.Encode(b); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	tel := componenttest.NewNopTelemetrySettings()
	tel.Logger = zap.NewNop()
	set := receiver.Settings{ID: component.NewID(f.Type()), TelemetrySettings: tel, BuildInfo: component.NewDefaultBuildInfo()}
	r, err := f.(xreceiver.Factory).CreateProfiles(ctx, set, cfg, sink)
	if err != nil {
		return err
	}
	if err := r.Start(ctx, componenttest.NewNopHost()); err != nil {
		return err
	}
	fmt.Println(`"ready"`)
	io.Copy(io.Discard, os.Stdin) // until its parent exits
	return r.Shutdown(ctx)
}

func batches(p pprofile.Profiles) []Batch {
	d := p.Dictionary()
	str := func(i int32) string { return d.StringTable().At(int(i)) }
	attrs := func(ix pcommon.Int32Slice) map[string]any {
		m := map[string]any{}
		for i := range ix.Len() {
			a := d.AttributeTable().At(int(ix.At(i)))
			m[str(a.KeyStrindex())] = a.Value().AsRaw()
		}
		return m
	}
	var out []Batch
	for _, rp := range p.ResourceProfiles().All() {
		b := Batch{Resource: rp.Resource().Attributes().AsRaw()}
		for _, sp := range rp.ScopeProfiles().All() {
			for _, x := range sp.Profiles().All() {
				y := Profile{Type: str(x.SampleType().TypeStrindex()), Unit: str(x.SampleType().UnitStrindex()), Time: uint64(x.Time()), Duration: x.DurationNano()}
				for _, s := range x.Samples().All() {
					z := Sample{Attrs: attrs(s.AttributeIndices()), Value: s.Values().At(0)}
					st := d.StackTable().At(int(s.StackIndex()))
					for _, l := range st.LocationIndices().All() {
						loc := d.LocationTable().At(int(l))
						m := d.MappingTable().At(int(loc.MappingIndex()))
						for _, line := range loc.Lines().All() {
							fn := d.FunctionTable().At(int(line.FunctionIndex()))
							z.Stack = append(z.Stack, fmt.Sprintf("%s %s:%d %s", str(fn.NameStrindex()), str(fn.FilenameStrindex()), line.Line(), str(m.FilenameStrindex())))
						}
					}
					y.Samples = append(y.Samples, z)
				}
				b.Profiles = append(b.Profiles, y)
			}
		}
		out = append(out, b)
	}
	return out
}
