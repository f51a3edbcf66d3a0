// Package onfirstuse puts off what every start of every program would otherwise pay for:
// package variables are made before main runs, whether a verb needs them or not, and a
// job of eight ranks starts up to seventeen processes.
package onfirstuse

import (
	"regexp"
	"sync"
)

// Regexp compiles an expression when it is first used, and panics then if it is wrong.
func Regexp(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
