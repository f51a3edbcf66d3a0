package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// T is a test as it runs.
type T struct {
	ctx      context.Context
	o        Options
	findings []string
	lacks    string
	cleanups []func()
}

// over ends a test early.
type over struct{}

func (t *T) end() {
	t.caught(recover())
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		func() {
			defer func() { t.caught(recover()) }()
			t.cleanups[i]()
		}()
	}
}

func (t *T) caught(p any) {
	if p == nil {
		return
	}
	if _, planned := p.(over); !planned {
		t.findings = append(t.findings, fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
	}
}

func (t *T) errorf(format string, args ...any) {
	t.findings = append(t.findings, fmt.Sprintf(format, args...))
}

func (t *T) fatalf(format string, args ...any) {
	t.errorf(format, args...)
	panic(over{})
}

// needs ends the test as one that does not apply.
func (t *T) needs(there bool, what string) {
	if !there {
		t.lacks = what
		panic(over{})
	}
}

// must ends the test if there is an error.
func (t *T) must(err error, doing string) {
	if err != nil {
		t.fatalf("%s: %v", doing, err)
	}
}

func (t *T) cleanup(f func() error, doing string) {
	t.cleanups = append(t.cleanups, func() {
		if err := f(); err != nil {
			t.errorf("%s: %v", doing, err)
		}
	})
}

// refused wants an error of one of the classes.
func (t *T) refused(err error, doing string, classes ...error) {
	for _, class := range classes {
		if errors.Is(err, class) {
			return
		}
	}
	t.errorf("%s: %v: expected an error of class %v", doing, err, classes)
}

// until polls for something that comes by itself, for as long as the test may take.
func (t *T) until(what string, there func() bool) {
	for !there() {
		if t.ctx.Err() != nil {
			t.fatalf("waited for %s in vain", what)
		}
		time.Sleep(50 * time.Microsecond)
	}
}
