// Package suggest guesses which name a user meant by a misspelled one.
package suggest

import (
	"fmt"
	"strings"
)

// Name returns the one of a list that a wrong one most likely means, or "".
func Name(wrong string, names []string) string {
	best, least := "", 1+max(1, len(wrong)/3)
	for _, n := range names {
		if d := distance(normal(wrong), normal(n)); d < least {
			best, least = n, d
		}
	}
	return best
}

// Hint is the text of a message behind the wrong name: empty where there is no guess.
func Hint(guess string) string {
	if guess == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", guess)
}

// normal removes what people confuse: case, and which separator is used.
func normal(s string) string {
	return strings.NewReplacer("-", "_", " ", "_").Replace(strings.ToLower(s))
}

// distance counts the edits (insert, delete, replace, swap of neighbors) between two
// names.
func distance(a, b string) int {
	before, last, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(last[j]+1, next[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, last, next = last, next, before
	}
	return last[len(b)]
}
