package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"go.yaml.in/yaml/v3"
)

// lines maps the dotted path of each key of a file to the line on which it stands.
// It is best effort: a message without a line is still a message.
type lines map[string]int

// of returns the line of a path, or of the nearest section around it; 0 if none.
func (l lines) of(path []string) int {
	for ; len(path) > 0; path = path[:len(path)-1] {
		if n := l[dotted(path)]; n > 0 {
			return n
		}
	}
	return 0
}

// yamlLines refuses a second document: the parser reads the first one alone, and what
// follows would have no effect.
func yamlLines(data []byte) (lines, error) {
	out := lines{}
	var doc yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	if decoder.Decode(&doc) == nil {
		for _, n := range doc.Content {
			out.yaml(n, "")
		}
	}
	for {
		var more yaml.Node
		switch err := decoder.Decode(&more); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		case more.Content[0].Tag != "!!null": // nothing follows a separator at the end
			return nil, fmt.Errorf("line %d: a second document begins, expected one", more.Line)
		}
	}
}

func (l lines) yaml(n *yaml.Node, path string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			here := join(path, n.Content[i].Value)
			l[here] = n.Content[i].Line
			l.yaml(n.Content[i+1], here)
		}
	case yaml.SequenceNode:
		for i, e := range n.Content {
			here := join(path, strconv.Itoa(i))
			l[here] = e.Line
			l.yaml(e, here)
		}
	case yaml.AliasNode:
		l.yaml(n.Alias, path)
	}
}

func tomlLines(data []byte) (lines, error) {
	out := lines{}
	section, arrays := "", map[string]int{}
	p := unstable.Parser{}
	p.Reset(data)
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table:
			section = out.toml(&p, e, "")
		case unstable.ArrayTable:
			name := out.toml(&p, e, "")
			section = join(name, strconv.Itoa(arrays[name]))
			arrays[name]++
			out[section] = out[name]
		case unstable.KeyValue:
			out.toml(&p, e, section)
		}
	}
	return out, nil
}

// toml records the key of one expression and returns its dotted path.
func (l lines) toml(p *unstable.Parser, e *unstable.Node, section string) string {
	var parts []string
	line := 0
	for it := e.Key(); it.Next(); {
		key := it.Node()
		parts = append(parts, string(key.Data))
		if line == 0 {
			line = p.Shape(key.Raw).Start.Line
		}
	}
	path := join(section, strings.Join(parts, "."))
	l[path] = line
	return path
}

// tomlErrorLine returns the line of a mistake in a TOML file, or 0 for other errors. The
// parser does not say it of all mistakes: not of a key that is there twice, for one. It
// stops at the first one, so that is on the last line of the shortest beginning of the file
// with the same mistake.
func tomlErrorLine(data []byte, err error) int {
	if err == nil || !strings.HasPrefix(err.Error(), "toml: ") {
		return 0
	}
	var known *toml.DecodeError
	if errors.As(err, &known) {
		line, _ := known.Position()
		return line
	}
	ends := []int{}
	for i, c := range data {
		if c == '\n' || i == len(data)-1 {
			ends = append(ends, i+1)
		}
	}
	at := sort.Search(len(ends), func(i int) bool {
		var tree map[string]any
		short := toml.Unmarshal(data[:ends[i]], &tree)
		return short != nil && short.Error() == err.Error()
	})
	return min(at+1, len(ends))
}
