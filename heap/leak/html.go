package leak

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"
)

//go:embed page.html
var page string

// The marks of page.html that a report takes the places of.
const (
	markTitle = "{{title}}"
	markData  = "{{data}}"
)

// maxPageNodes bounds the tree map's data: smaller nodes are in "(other)".
const maxPageNodes = 8000

// pageNode is a Node as the page reads it: short names, since there are thousands.
type pageNode struct {
	Name     string      `json:"n"`
	Retained int64       `json:"r"`
	Count    int64       `json:"c"`
	Kids     []*pageNode `json:"k,omitempty"`
}

func (n *Node) size() int {
	sum := 1
	for _, k := range n.Kids {
		sum += k.size()
	}
	return sum
}

func (n *Node) page() *pageNode {
	p := &pageNode{Name: n.Name, Retained: n.Retained, Count: n.Count}
	for _, k := range n.Kids {
		p.Kids = append(p.Kids, k.page())
	}
	return p
}

// WriteHTML writes a report as one file that needs no other and no network: a tree map of
// retained sizes by dominator path, the findings with their paths, classes, a search.
func (r *Report) WriteHTML(w io.Writer) error {
	doc := struct {
		*Report
		Map *pageNode `json:"map,omitempty"`
	}{Report: r}
	if r.Tree != nil {
		least := max(r.Bytes/20_000, 1)
		tree := r.Tree.Prune(least)
		for tree.size() > maxPageNodes {
			least *= 2
			tree = r.Tree.Prune(least)
		}
		doc.Map = tree.page()
	}
	// Marshal writes < and > of names as escapes, so that no name ends the script.
	data, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(page, markTitle)
	middle, after, ok2 := strings.Cut(rest, markData)
	if !ok || !ok2 {
		return fmt.Errorf("the page lacks its marks")
	}
	var b bytes.Buffer
	b.WriteString(before)
	b.WriteString(html.EscapeString(r.File))
	b.WriteString(middle)
	b.Write(data)
	b.WriteString(after)
	_, err = w.Write(b.Bytes())
	return err
}
