package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An error in a file for arm64, or in a test of one, is found, and those for amd64 are not looked at.
func TestCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod":          "module m\n\ngo 1.26\n",
		"m.go":            "package m\n\nfunc F() int { return g() }\n",
		"m_amd64.go":      "package m\n\nfunc g() string { return os.Args[0] }\n",
		"m_arm64.go":      "package m\n\nimport \"os\"\n\nfunc g() int { return len(os.Args) }\n",
		"bad/b.go":        "package bad\n\nimport \"m\"\n\nvar X = m.F()\n",
		"bad/b_arm64.go":  "package bad\n\nvar y string = X\n",
		"test/t.go":       "package test\n",
		"test/t_test.go":  "package test_test\n\nimport _ \"m/test\"\n\nvar _ int = \"\"\n",
		"none/n_amd64.go": "package none\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for pattern, want := range map[string]string{".": "", "./bad": "b_arm64.go:3:16", "./test": "t_test.go:5:13"} {
		err := check("arm64", []string{pattern})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", pattern, err, want)
		}
	}
}
