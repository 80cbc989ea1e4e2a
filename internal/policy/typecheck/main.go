// Typecheck reports type errors in packages and their tests, as another architecture has them. go vet compiles all
// dependencies for that, which takes 30 times as long.
//
//	typecheck arm64 PACKAGE…
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: typecheck ARCHITECTURE PACKAGE…")
		os.Exit(2)
	}
	if err := check(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// listed is a package as go list describes it.
type listed struct {
	ImportPath, Dir, ForTest string
	GoFiles                  []string
	ImportMap                map[string]string
	DepOnly                  bool
}

// check reports the errors in packages, and in their tests.
func check(arch string, patterns []string) error {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-test", "-json=ImportPath,Dir,ForTest,GoFiles,ImportMap,DepOnly"}, patterns...)...)
	cmd.Env = append(os.Environ(), "GOARCH="+arch, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c := checker{fset: token.NewFileSet(), sizes: types.SizesFor("gc", arch), done: map[string]*types.Package{"unsafe": types.Unsafe}}
	dec := json.NewDecoder(out)
	for {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		c.add(&p)
	}
	return errors.Join(append(c.errs, cmd.Wait())...)
}

// checker checks packages in the order of their imports.
type checker struct {
	fset  *token.FileSet
	sizes types.Sizes
	done  map[string]*types.Package
	errs  []error
}

func (c *checker) add(p *listed) {
	if p.ImportPath == "unsafe" || filepath.Ext(p.ImportPath) == ".test" {
		return
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		if !filepath.IsAbs(name) {
			name = filepath.Join(p.Dir, name)
		}
		f, err := parser.ParseFile(c.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			c.errs = append(c.errs, err)
			return
		}
		files = append(files, f)
	}
	conf := types.Config{Importer: mapped{c, p.ImportMap}, Sizes: c.sizes, IgnoreFuncBodies: p.DepOnly, Error: func(err error) {
		if !p.DepOnly {
			c.errs = append(c.errs, err)
		}
	}}
	c.done[p.ImportPath], _ = conf.Check(p.ImportPath, c.fset, files, nil)
}

// mapped finds the packages that one package imports.
type mapped struct {
	c   *checker
	ids map[string]string
}

func (m mapped) Import(path string) (*types.Package, error) {
	if id, ok := m.ids[path]; ok {
		path = id
	}
	if p := m.c.done[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("package %s is not listed", path)
}
