package dsl

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Kind is the class of a mistake. Front ends for languages with exceptions raise the exception of that name.
type Kind string

// The kinds of mistakes.
const (
	RuntimeError   Kind = "RuntimeError"   // operands that do not fit the operation, the channel or the program
	ValueError     Kind = "ValueError"     // an argument that is never legal
	TypeError      Kind = "TypeError"      // an argument of the wrong type
	IndexError     Kind = "IndexError"     // a rank that the collective does not have
	AssertionError Kind = "AssertionError" // a protocol that does not exist
)

// Error is a mistake in a program, at the line that made it.
type Error struct {
	Kind Kind
	Text string
	File string // "" if no line of a program made it
	Line int
}

func (e *Error) Error() string {
	if e.File == "" {
		return "plan: " + e.Text
	}
	return fmt.Sprintf("%s:%d: plan: %s", e.File, e.Line, e.Text)
}

// Unwrap returns the class: the author of the program made a mistake.
func (e *Error) Unwrap() error { return framework.ErrInvalid }

// site is a line of the user's program, found only when somebody asks for it.
type site [8]uintptr

func here() (s site) {
	runtime.Callers(3, s[:])
	return s
}

// ownPrefix begins the names of this package's functions, which are never the user's line.
var ownPrefix = func() string {
	pc, _, _, _ := runtime.Caller(0)
	name := runtime.FuncForPC(pc).Name()
	return name[:strings.LastIndex(name, "/")] + "/dsl."
}()

func (s site) line() (string, int) {
	n := 0
	for n < len(s) && s[n] != 0 {
		n++
	}
	if n == 0 {
		return "", 0
	}
	frames := runtime.CallersFrames(s[:n])
	for {
		f, more := frames.Next()
		if f.Function != "" && !strings.HasPrefix(f.Function, ownPrefix) {
			return f.File, f.Line
		}
		if !more {
			return "", 0
		}
	}
}

func (s site) fault(kind Kind, format string, args ...any) *Error {
	file, line := s.line()
	return &Error{Kind: kind, Text: fmt.Sprintf(format, args...), File: file, Line: line}
}

// fail keeps the first mistake.
func (p *Program) fail(kind Kind, format string, args ...any) {
	if p.err == nil {
		p.err = here().fault(kind, format, args...)
	}
}

// Err returns the first mistake so far, or nil.
func (p *Program) Err() error {
	if p.err == nil {
		return nil
	}
	return p.err
}

// Recover forgets the mistake that Err returned, so that later calls have effect again. A front end that has raised it as an
// exception calls this: its program may have caught the exception. Nothing that a mistaken call returned may be used then.
func (p *Program) Recover() { p.err = nil }
