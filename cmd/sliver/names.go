package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/cache"
	"github.com/sliverprof/sliver/symbol/debuginfod"
	"github.com/sliverprof/sliver/symbol/naming"
)

// nameFlags are the flags for sources of names.
type nameFlags struct {
	debugDirs  []string
	fullNames  bool
	debuginfod bool
	noCache    bool
}

// register adds the flags; where names the recordings that they apply to.
func (n *nameFlags) register(fs *pflag.FlagSet, where string) {
	fs.StringArrayVar(&n.debugDirs, "debug-dir", nil, "also look for separate debug files in this directory"+where+"; repeatable")
	fs.BoolVar(&n.fullNames, "full-names", false, "keep parameters and template arguments in names"+where)
	fs.BoolVar(&n.debuginfod, "debuginfod", false, "fetch missing debug files from the servers in DEBUGINFOD_URLS"+where)
	fs.BoolVar(&n.noCache, "no-symbol-cache", false, "do not use the symbol cache (sliver/symbols in the user's cache directory)")
}

// Size limits of folders in the user's cache, in bytes.
const (
	maxSymbols    = 512 << 20
	maxDebugFiles = 8 << 30
)

// sources are the sources of names other than the files themselves.
type sources struct {
	finder symbol.Finder // nil: none
	cache  *cache.Dir    // nil: none
	hurry  func()        // ends waits for servers; nil: none
}

// userCache returns the folder for the user's caches, which may not exist. It is an error if the user has no home folder: users of
// services have names of one that must not be made.
func userCache() (string, error) {
	dir, err := os.UserCacheDir()
	if err == nil && os.Getenv("XDG_CACHE_HOME") == "" {
		_, err = os.Stat(filepath.Dir(dir))
	}
	return dir, err
}

// sources opens the sources that the flags select. Without a usable cache, names are
// still found, only more slowly.
func (n *nameFlags) sources(help string, w io.Writer) (s sources, err error) {
	base, cerr := userCache()
	if cerr == nil && !n.noCache {
		if s.cache, err = cache.Open(filepath.Join(base, "sliver", "symbols"), maxSymbols); err != nil {
			s.cache = nil
		}
	}
	if !n.debuginfod {
		return s, nil
	}
	if cerr != nil {
		return s, fmt.Errorf("debuginfod: no folder to keep files in: %w", cerr)
	}
	dir, err := cache.Open(filepath.Join(base, "sliver", "debuginfod"), maxDebugFiles)
	if err != nil {
		return s, err
	}
	f, err := debuginfod.New(os.Getenv, dir, versionString(), func(p string) { fmt.Fprintf(w, "sliver: %s\n", oneLine(fmt.Errorf("%s", p))) })
	if err != nil {
		return s, usagef(help, "%v", err)
	}
	if f == nil {
		return s, usagef(help, "--debuginfod: the variable %s names no server", debuginfod.URLs)
	}
	s.finder, s.hurry = f, f.Stop
	return s, nil
}

// options returns the naming options for recordings without names, on this machine.
func (n *nameFlags) options(help string, w io.Writer) (o naming.Options, err error) {
	s, err := n.sources(help, w)
	if err != nil {
		return o, err
	}
	o = naming.Options{Finder: symbol.Dirs{Extra: n.debugDirs}, FullNames: n.fullNames, Cache: s.cache}
	if s.finder != nil {
		o.Finder = symbol.Finders{o.Finder, s.finder}
	}
	return o, nil
}
