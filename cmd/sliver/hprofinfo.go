package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/sliverprof/sliver/heap/hprof"
)

// hprofDoc is the output of sliver hprof info --json.
type hprofDoc struct {
	File        string          `json:"file"`
	Compression string          `json:"compression,omitempty"`
	Dumps       []hprofDump     `json:"dumps"`
	Findings    []hprof.Finding `json:"findings,omitempty"`
	Error       string          `json:"error,omitempty"`
}

type hprofDump struct {
	Version  string                  `json:"version"`
	IDSize   int                     `json:"id_size"`
	Time     string                  `json:"time"`
	Stripped string                  `json:"stripped,omitempty"`
	Objects  hprof.Amount            `json:"objects"`
	Classes  int64                   `json:"classes"`
	Strings  int64                   `json:"strings"`
	Roots    map[string]int64        `json:"roots"`
	Content  map[string]hprof.Amount `json:"content"`
	Arrays   map[string]hprof.Amount `json:"primitive_arrays"`
	Records  map[string]hprof.Amount `json:"records"`
	Heaps    []hprof.HeapInfo        `json:"heaps,omitempty"`
}

// hprofKinds are the kinds of objects in table order.
var hprofKinds = []struct {
	tag  uint8
	name string
}{
	{hprof.SubInstance, "instances"}, {hprof.SubObjectArray, "object arrays"}, {hprof.SubPrimitiveArray, "primitive arrays"},
	{hprof.SubPrimitiveBare, "arrays without values"}, {hprof.SubClass, "classes"},
}

var hprofRoots = []struct {
	tag  uint8
	name string
}{
	{hprof.SubRootUnknown, "unknown"}, {hprof.SubRootJNIGlobal, "JNI global"}, {hprof.SubRootJNILocal, "JNI local"},
	{hprof.SubRootJavaFrame, "Java frame"}, {hprof.SubRootNative, "native stack"}, {hprof.SubRootSticky, "sticky class"},
	{hprof.SubRootBlock, "thread block"}, {hprof.SubRootMonitor, "monitor"}, {hprof.SubRootThread, "thread"},
	{hprof.SubRootInterned, "interned string"}, {hprof.SubRootFinalizing, "finalizing"}, {hprof.SubRootDebugger, "debugger"},
	{hprof.SubRootCleanup, "reference cleanup"}, {hprof.SubRootVMInternal, "VM internal"}, {hprof.SubRootJNIMonitor, "JNI monitor"},
	{hprof.SubUnreachable, "unreachable"},
}

var hprofRecords = []struct {
	tag  uint8
	name string
}{
	{hprof.TagString, "strings"}, {hprof.TagLoadClass, "loaded classes"}, {hprof.TagUnloadClass, "unloaded classes"},
	{hprof.TagFrame, "stack frames"}, {hprof.TagTrace, "stack traces"}, {hprof.TagAllocSites, "allocation sites"},
	{hprof.TagHeapSummary, "heap summaries"}, {hprof.TagStartThread, "threads started"}, {hprof.TagEndThread, "threads ended"},
	{hprof.TagHeapDump, "heap dumps"}, {hprof.TagCPUSamples, "CPU samples"}, {hprof.TagControl, "control settings"},
	{hprof.TagHeapSegment, "heap dump segments"}, {hprof.TagHeapDumpEnd, "heap dump ends"},
}

func stripped(i *hprof.Info) string {
	if i.Cut {
		return "koom"
	}
	return ""
}

func hprofDocument(in *hprofInput, infos []*hprof.Info) *hprofDoc {
	doc := &hprofDoc{File: in.name, Compression: string(in.how)}
	for _, i := range infos {
		d := hprofDump{Version: i.Version, IDSize: i.IDSize, Time: i.Time.UTC().Format("2006-01-02T15:04:05.000Z"), Stripped: stripped(i),
			Objects: i.Objects(), Classes: i.Subs[hprof.SubClass].Count, Strings: i.Records[hprof.TagString].Count, Heaps: i.Heaps,
			Roots: map[string]int64{}, Content: map[string]hprof.Amount{}, Arrays: map[string]hprof.Amount{}, Records: map[string]hprof.Amount{}}
		for _, k := range hprofKinds {
			if a := i.Subs[k.tag]; a.Count > 0 {
				d.Content[k.name] = a
			}
		}
		for _, k := range hprofRoots {
			if a := i.Subs[k.tag]; a.Count > 0 {
				d.Roots[k.name] = a.Count
			}
		}
		for t, a := range i.Arrays {
			if a.Count > 0 {
				d.Arrays[hprof.Type(t).String()] = a
			}
		}
		for _, k := range hprofRecords {
			if a := i.Records[k.tag]; a.Count > 0 {
				d.Records[k.name] = a
			}
		}
		doc.Dumps = append(doc.Dumps, d)
	}
	return doc
}

// thousands formats a number with separators.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// print writes the table of sliver hprof info.
func (in *hprofInput) print(e *env, infos []*hprof.Info) {
	for n, i := range infos {
		what := ""
		if in.how != hprof.Plain {
			what = ", " + string(in.how)
		}
		if len(infos) > 1 {
			what += fmt.Sprintf(", dump %d of %d", n+1, len(infos))
		}
		if i.Cut {
			what += ", stripped by KOOM's rule"
		}
		fmt.Fprintf(e.stdout, "%s: HPROF %s, %d-byte identifiers, %s%s\n", in.name, i.Version, i.IDSize, i.Time.UTC().Format("2006-01-02 15:04:05 UTC"), what)
		w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
		row := func(name string, a hprof.Amount) {
			if a.Count > 0 {
				fmt.Fprintf(w, "%s\t%s\t  %s\n", thousands(a.Count), thousands(a.Bytes), name)
			}
		}
		fmt.Fprintf(w, "count\tbytes\t\n")
		row("objects", i.Objects())
		for _, k := range hprofKinds {
			row("  "+k.name, i.Subs[k.tag])
			if k.tag == hprof.SubPrimitiveArray {
				for t, a := range i.Arrays {
					row("    "+hprof.Type(t).String()+"[]", a)
				}
			}
		}
		for _, h := range i.Heaps {
			row("  in the heap "+h.Name, h.Objects)
		}
		row("roots", i.Roots)
		for _, k := range hprofRoots {
			row("  "+k.name, i.Subs[k.tag])
		}
		row(strings.TrimSpace("records"), records(i))
		for _, k := range hprofRecords {
			row("  "+k.name, i.Records[k.tag])
		}
		w.Flush()
	}
}

// records returns the sum of all records; those with sub-records count without their
// content.
func records(i *hprof.Info) hprof.Amount {
	var sum hprof.Amount
	for _, a := range i.Records {
		sum.Count += a.Count
		sum.Bytes += a.Bytes
	}
	return sum
}
