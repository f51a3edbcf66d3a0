package lint

import (
	"cmp"
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"unicode"
)

// actorless are the first words of sentences that do not name their actor. "Who has left gets an error" makes the
// reader wait for the subject: "A rank that has left gets an error".
var actorless = regexp.MustCompile(`(?:^|[.!?]["')]?\s+)((?:Whoever|Whatever|Whose|Whom|Who|What)\b)|(?:^|[;:] )((?:whoever|who)\b)|^((?:whatever|whose|whom|what)\b)`)

// noActor are first words that deny one: "nobody waits" does not say of whom it speaks, "no rank waits" does.
var noActor = regexp.MustCompile(`(?:^|[.!?]["')]?\s+|[;:] )((?:[Nn]obody|[Nn]o one)\b)`)

// private are words that this tree once had for things that have a name in the field, with that name.
var private = map[string]string{
	"belt":    "chunks, pipe",
	"bury":    "the event: a rank was lost",
	"courier": "staging",
	"lobby":   "rendezvous",
	"mail":    "send/recv, message",
	"outlet":  "output pump",
	"parting": "goodbye",
	"stray":   "misplaced, unknown",
	"told":    "announced, reported, known; or say who gets it",
	"trip":    "call; round trip, in full",
	"undo":    "release, roll back",
}

// unnamed are private words of identifiers alone: in sentences they have their plain meaning.
var unnamed = map[string]string{
	"gate": "stream gate, in full",
	"near": "same host, LL; within for numbers",
	"say":  "report, write",
	"way":  "path, algorithm, exchange",
}

// apart are uses of these words that are the field's own.
var apart = regexp.MustCompile(`(?i)round.?trips?|stream.?gates?`)

// Prose checks that sentences of comments and documents name their actor, and that nothing has a private name.
func Prose(files []*File) []Problem {
	var out []Problem
	for _, f := range files {
		if f.Generated() || strings.HasPrefix(f.Path, "internal/lint/") {
			continue // this package names what it forbids
		}
		for _, p := range f.paragraphs() {
			out = append(out, f.sentences(p)...)
		}
		if f.AST != nil {
			out = append(out, f.names()...)
		}
	}
	return out
}

// sentences checks a paragraph. Documents may quote private words.
func (f *File) sentences(p paragraph) []Problem {
	var out []Problem
	for _, m := range actorless.FindAllStringSubmatch(p.text, -1) {
		out = append(out, Problem{f.Path, p.line, fmt.Sprintf("a clause begins with %q: name the actor", m[1]+m[2]+m[3])})
	}
	for _, m := range noActor.FindAllStringSubmatch(p.text, -1) {
		if !strings.HasPrefix(f.Path, "collectives/kernels/") { // kept images name the sum of their sources
			out = append(out, Problem{f.Path, p.line, fmt.Sprintf("a clause begins with %q: name the actor", m[1])})
		}
	}
	if f.document() {
		return out
	}
	for _, word := range words.FindAllString(apart.ReplaceAllString(p.text, ""), -1) {
		if s := instead(word, private); s != "" {
			out = append(out, Problem{f.Path, p.line, fmt.Sprintf("%q: use the field's word (%s)", word, s)})
		}
	}
	return out
}

// names checks the identifiers of a Go file.
func (f *File) names() []Problem {
	var out []Problem
	seen := map[string]bool{}
	gated := strings.HasSuffix(f.Package(), "/streamgate")
	ast.Inspect(f.AST, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "streamgate" {
				return false // its package has said which gate
			}
		case *ast.Ident:
			if seen[n.Name] {
				break
			}
			seen[n.Name] = true
			for _, word := range parts(apart.ReplaceAllString(n.Name, "")) {
				s := cmp.Or(instead(word, private), instead(word, unnamed))
				if s != "" && (!gated || word != "gate") {
					out = append(out, Problem{f.Path, f.at(n.Pos()), fmt.Sprintf("%s: %q: use the field's word (%s)", n.Name, word, s)})
				}
			}
		}
		return true
	})
	return out
}

// instead looks a word up, in the plural as well.
func instead(word string, list map[string]string) string {
	word = strings.ToLower(word)
	return cmp.Or(list[word], list[strings.TrimSuffix(word, "s")])
}

var words = regexp.MustCompile(`[A-Za-z]+`)

// parts splits a name in camel case into its words, in lower case.
func parts(name string) []string {
	var out []string
	begin, r := 0, []rune(name)
	for i := 1; i <= len(r); i++ {
		if i == len(r) || r[i] == '_' || unicode.IsUpper(r[i]) && (!unicode.IsUpper(r[i-1]) || i+1 < len(r) && unicode.IsLower(r[i+1])) {
			out = append(out, strings.ToLower(strings.Trim(string(r[begin:i]), "_")))
			begin = i
		}
	}
	return out
}

// document reports whether all of it is text.
func (f *File) document() bool { return strings.HasSuffix(f.Path, ".md") }

// paragraph is a piece of text that sentences do not cross.
type paragraph struct {
	line int
	text string
}

// paragraphs are those of a document, or of the comments of a source file.
func (f *File) paragraphs() []paragraph {
	switch {
	case f.document():
		return paragraphs(strings.Split(f.Text, "\n"), 1, true)
	case f.AST != nil:
		var out []paragraph
		for _, group := range f.AST.Comments {
			var lines []string
			for _, c := range group.List {
				lines = append(lines, strings.Split(strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(c.Text, "//"), "/*"), "*/"), "\n")...)
			}
			out = append(out, paragraphs(lines, f.at(group.Pos()), false)...)
		}
		return out
	case sources.MatchString(f.Path):
		return f.lineComments()
	}
	return nil
}

var (
	sources = regexp.MustCompile(`\.(h|c|cc|cu|cuh|proto|py|sh|ya?ml)$|(^|/)Makefile$|^\.ci/run$`)
	slashes = regexp.MustCompile(`\.(h|c|cc|cu|cuh|proto)$`)
	rest    = regexp.MustCompile(`(?:^|\s)(?://|#+)(?:\s+(.*))?$`)
	item    = regexp.MustCompile(`^\s*(?:#+|[-*]|\d+\.)\s+`)
)

// lineComments are the paragraphs of comments that end with their lines. A comment behind code is one of its own.
func (f *File) lineComments() []paragraph {
	var out []paragraph
	var block []string
	for i, line := range strings.Split(f.Text+"\n", "\n") {
		m := rest.FindStringSubmatchIndex(line)
		if m != nil && slashes.MatchString(f.Path) != strings.Contains(line[m[0]:m[1]], "//") {
			m = nil
		}
		text := ""
		if m != nil && m[2] >= 0 {
			text = line[m[2]:m[3]]
		}
		switch {
		case m == nil:
		case strings.TrimSpace(line[:m[0]]) == "":
			block = append(block, text)
			continue
		default:
			out = append(out, paragraph{i + 1, text})
		}
		out = append(out, paragraphs(block, i+1-len(block), false)...)
		block = nil
	}
	return out
}

// paragraphs joins lines to paragraphs. Blank lines, items, headings, tables and code end them.
func paragraphs(lines []string, first int, document bool) []paragraph {
	var out []paragraph
	open, code := false, false
	for i, line := range lines {
		text := strings.TrimSpace(line)
		switch fence := document && strings.HasPrefix(text, "```"); {
		case fence:
			open, code = false, !code
		case code || text == "" || strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "    "):
			open = false
		case document && strings.HasPrefix(text, "|"):
			open = false // a cell is no sentence
		case item.MatchString(line) || !open:
			out = append(out, paragraph{first + i, bare(item.ReplaceAllString(line, ""))})
			open = !strings.HasPrefix(text, "#")
		default:
			out[len(out)-1].text += " " + text
		}
	}
	return out
}

// bare is a text without the marks of emphasis in front of it.
func bare(text string) string { return strings.TrimLeft(strings.TrimSpace(text), "*_ ") }
