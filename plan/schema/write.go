package schema

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"hash"
	"io"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
)

// Compact is the indent of a text in one line.
const Compact = -1

// Encode returns the plan as JSON, without a newline at the end. The text is byte for byte the one that MSCCL++
// writes: its order of keys, and the form of json.dumps of Python with that indent, which is 2 there.
func (p *Plan) Encode(indent int) []byte {
	w := writer{indent: indent}
	w.plan(p)
	return w.out
}

// Sum is the hash of the plan's text: plans that say the same have the same.
func (p *Plan) Sum() [sha256.Size]byte {
	w := writer{indent: Compact, hash: sha256.New(), out: make([]byte, 0, 2*hashedAtOnce)}
	w.plan(p)
	w.hash.Write(w.out)
	return [sha256.Size]byte(w.hash.Sum(nil))
}

// WriteFile writes the plan, compressed if the name ends in .gz. The file is there whole, or not at all.
func (p *Plan) WriteFile(name string) error {
	text := append(p.Encode(2), '\n')
	if !strings.HasSuffix(name, ".gz") {
		return atomicfile.Bytes(name, text)
	}
	return atomicfile.File(name, func(w io.Writer) error {
		z := gzip.NewWriter(w)
		if _, err := io.Copy(z, bytes.NewReader(text)); err != nil {
			return err
		}
		return z.Close()
	})
}

// writer builds a text with the separators of Python.
type writer struct {
	out    []byte
	indent int
	depth  int
	first  bool // nothing is in the object or list yet

	hash hash.Hash // takes the text piece by piece; nil: it is kept
}

const hashedAtOnce = 16 << 10

// open begins an object or list, and end ends it.
func (w *writer) open(bracket byte) {
	w.out = append(w.out, bracket)
	w.depth++
	w.first = true
}

func (w *writer) end(bracket byte) {
	w.depth--
	if !w.first {
		w.line()
	}
	w.out = append(w.out, bracket)
	w.first = false
}

// line begins a new line where the text has lines.
func (w *writer) line() {
	if w.indent < 0 {
		return
	}
	w.out = append(w.out, '\n')
	for range w.depth * w.indent {
		w.out = append(w.out, ' ')
	}
}

// item separates an element from the one before.
func (w *writer) item() {
	if w.hash != nil && len(w.out) >= hashedAtOnce {
		w.hash.Write(w.out)
		w.out = w.out[:0]
	}
	if !w.first {
		w.out = append(w.out, ',')
		if w.indent < 0 {
			w.out = append(w.out, ' ')
		}
	}
	w.line()
	w.first = false
}

func (w *writer) key(name string) {
	w.item()
	w.text(name)
	w.out = append(w.out, ": "...)
}

func (w *writer) str(name, value string) { w.key(name); w.text(value) }
func (w *writer) num(name string, value int) {
	w.key(name)
	w.out = strconv.AppendInt(w.out, int64(value), 10)
}
func (w *writer) size(name string, value uint64) {
	w.key(name)
	w.out = strconv.AppendUint(w.out, value, 10)
}
func (w *writer) flag(name string, value bool) {
	w.key(name)
	w.out = strconv.AppendBool(w.out, value)
}

func (w *writer) nums(name string, values []int) {
	w.key(name)
	w.open('[')
	for _, v := range values {
		w.item()
		w.out = strconv.AppendInt(w.out, int64(v), 10)
	}
	w.end(']')
}

// each writes a list of objects.
func each[T any](w *writer, name string, list []T, write func(*T)) {
	w.key(name)
	w.open('[')
	for i := range list {
		w.item()
		w.open('{')
		write(&list[i])
		w.end('}')
	}
	w.end(']')
}

const hexDigits = "0123456789abcdef"

// text writes a string as Python does: what is no ASCII is escaped.
func (w *writer) text(s string) {
	w.out = append(w.out, '"')
	if plain(s) {
		w.out = append(w.out, s...)
	} else {
		for _, r := range s {
			w.char(r)
		}
	}
	w.out = append(w.out, '"')
}

// plain reports whether nothing of a string is escaped.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func (w *writer) char(r rune) {
	switch {
	case r == '"' || r == '\\':
		w.out = append(w.out, '\\', byte(r))
	case r == '\n':
		w.out = append(w.out, `\n`...)
	case r == '\r':
		w.out = append(w.out, `\r`...)
	case r == '\t':
		w.out = append(w.out, `\t`...)
	case r == '\b':
		w.out = append(w.out, `\b`...)
	case r == '\f':
		w.out = append(w.out, `\f`...)
	case r >= 0x20 && r < 0x7f:
		w.out = append(w.out, byte(r))
	case r > 0xffff:
		r -= 0x10000
		w.escape(0xd800 + r>>10)
		w.escape(0xdc00 + r&0x3ff)
	default:
		w.escape(r)
	}
}

func (w *writer) escape(r rune) {
	w.out = append(w.out, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}
