package schema

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// Version is the newest version of the format that this package reads. A file without the key "version" is of version
// 1, which is the format of MSCCL++ 0.9 and 0.10.
const Version = 1

// ReadFile reads a plan within DefaultLimits.
func ReadFile(name string) (*Plan, error) { return DefaultLimits.ReadFile(name) }

// Parse reads a plan within DefaultLimits.
func Parse(data []byte) (*Plan, error) { return DefaultLimits.Parse(data) }

// ReadFile reads a plan from a file, which may be compressed, and checks it.
func (l Limits) ReadFile(name string) (*Plan, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, l.Bytes+1))
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", name, err)
	}
	p, err := l.Parse(data)
	var wrong *Error
	if errors.As(err, &wrong) {
		wrong.File = name
	}
	return p, err
}

// Parse reads a plan from a text, which may be compressed, and checks it.
func (l Limits) Parse(data []byte) (*Plan, error) {
	data, err := l.text(data)
	if err != nil {
		return nil, err
	}
	if err := syntax(data); err != nil {
		return nil, err
	}
	p := &Plan{ThreadsPerBlock: DefaultThreads, Alignment: DefaultAlignment, MaxSize: DefaultMaxSize}
	s := &scanner{data: data, limits: l}
	if err := s.plan(p); err != nil {
		return nil, err
	}
	if err := p.Check(); err != nil {
		return nil, located(err, data, l)
	}
	return p, nil
}

// text uncompresses what is compressed.
func (l Limits) text(data []byte) ([]byte, error) {
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, &Error{Problem: fmt.Sprintf("the compressed file is damaged: %v", err)}
		}
		if data, err = io.ReadAll(io.LimitReader(z, l.Bytes+1)); err != nil {
			return nil, &Error{Problem: fmt.Sprintf("the compressed file is damaged: %v", err)}
		}
	}
	if int64(len(data)) > l.Bytes {
		return nil, &Error{Problem: fmt.Sprintf("the text is longer than %d bytes, the limit", l.Bytes)}
	}
	return data, nil
}

// located adds the line to an error of Check: a second walk over the text finds the path.
func located(err error, data []byte, l Limits) error {
	var wrong *Error
	if !errors.As(err, &wrong) {
		return err
	}
	s := &scanner{data: data, limits: l, target: wrong.Path}
	if s.plan(&Plan{}) == nil {
		wrong.Line = max(s.line, 1)
	}
	return err
}

// word reads a string that is one of a list.
func word[T ~string](s *scanner, to *T, what string, list ...T) error {
	if s.next() != '"' {
		return s.wrong("a string")
	}
	start := s.pos
	raw := s.raw()
	for _, x := range list {
		if string(raw[1:len(raw)-1]) == string(x) {
			*to = x
			return nil
		}
	}
	text, names := unquoted(raw), make([]string, len(list))
	for i, x := range list {
		if names[i] = string(x); names[i] == text {
			*to = x
			return nil
		}
	}
	return s.fail(start, "unknown %s %q%s: expected one of %s", what, cut(text), suggest.Hint(suggest.Name(cut(text), names)), join(names))
}

func join(names []string) string {
	var b bytes.Buffer
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(n)
	}
	return b.String()
}

// take stores what a reading function returns.
func take[T any](to *T, read func() (T, error)) error {
	v, err := read()
	*to = v
	return err
}

// count reads a number from 0 to the largest one.
func (s *scanner) count(to *int, most int) error {
	n, err := s.number(0, int64(most))
	*to = n
	return err
}

// numbers reads a list of numbers from 0.
func (s *scanner) numbers(to *[]int) error {
	*to = []int{}
	return s.list(s.limits.List, func() error {
		var n int
		err := s.count(&n, maxNumber)
		*to = append(*to, n)
		return err
	})
}

// objects reads a list of objects.
func objects[T any](s *scanner, to *[]T, most int, read func(*T) error) error {
	*to = []T{}
	return s.list(most, func() error {
		var v T
		err := read(&v)
		*to = append(*to, v)
		return err
	})
}
