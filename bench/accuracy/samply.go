package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// samplyProfile has some fields of a profile of samply, in the format of Firefox's profiler
// (docs-developer/gecko-profile-format.md of firefox-devtools/profiler). Its frames are addresses within files.
type samplyProfile struct {
	Libs []struct {
		Path string `json:"path"`
	} `json:"libs"`
	Threads []struct {
		TID     any `json:"tid"`
		Samples struct {
			Stack []*int     `json:"stack"`
			CPU   []*float64 `json:"threadCPUDelta"`
		} `json:"samples"`
		StackTable struct {
			Frame  []int  `json:"frame"`
			Prefix []*int `json:"prefix"`
		} `json:"stackTable"`
		FrameTable struct {
			Address []int64 `json:"address"`
			Func    []int   `json:"func"`
		} `json:"frameTable"`
		FuncTable struct {
			Resource []int `json:"resource"`
		} `json:"funcTable"`
		ResourceTable struct {
			Lib []*int `json:"lib"`
		} `json:"resourceTable"`
	} `json:"threads"`
}

// bySamply records with samply and names the frames of the program itself, of which the duty programs' parts are.
func (c *config) bySamply(pid int, span time.Duration, out string) error {
	file := out + ".samply.json.gz"
	cmd := exec.Command(c.samply, "record", "-p", strconv.Itoa(pid), "-r", "1000", "--save-only", "-o", file)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return err
	}
	time.Sleep(span)
	_ = cmd.Process.Signal(os.Interrupt) // it heeds --duration for commands alone
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	defer os.Remove(file)
	p, err := readSamply(file)
	if err != nil {
		return err
	}
	symbols, err := functions(c.duty)
	if err != nil {
		return err
	}
	name := func(at uint64) string {
		i, found := slices.BinarySearchFunc(symbols, at, func(s elf.Symbol, at uint64) int { return cmp.Compare(s.Value, at) })
		if !found {
			i--
		}
		if i < 0 || at >= symbols[i].Value+symbols[i].Size {
			return "?"
		}
		return symbols[i].Name
	}
	var text strings.Builder
	for i := range p.Threads {
		t := &p.Threads[i]
		if fmt.Sprint(t.TID) != strconv.Itoa(pid) {
			continue
		}
		for k, at := range t.Samples.Stack {
			if k >= len(t.Samples.CPU) || t.Samples.CPU[k] == nil {
				continue
			}
			frames := []string{}
			for ; at != nil; at = t.StackTable.Prefix[*at] {
				f := t.StackTable.Frame[*at]
				lib := (*int)(nil)
				if r := t.FuncTable.Resource[t.FrameTable.Func[f]]; r >= 0 {
					lib = t.ResourceTable.Lib[r]
				}
				if lib != nil && filepath.Base(p.Libs[*lib].Path) == filepath.Base(c.duty) {
					frames = append(frames, name(uint64(t.FrameTable.Address[f])))
				}
			}
			slices.Reverse(frames)
			fmt.Fprintf(&text, "main;%s %.0f\n", strings.Join(frames, ";"), *t.Samples.CPU[k])
		}
	}
	return os.WriteFile(out+".cpu.folded", []byte(text.String()), 0o600)
}

func readSamply(file string) (*samplyProfile, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	p := &samplyProfile{}
	return p, json.NewDecoder(z).Decode(p)
}

// functions returns those of an ELF file by address, relative to its beginning in memory.
func functions(file string) ([]elf.Symbol, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s elf.Symbol) bool { return elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 })
	slices.SortFunc(all, func(a, b elf.Symbol) int { return cmp.Compare(a.Value, b.Value) })
	return all, nil
}
