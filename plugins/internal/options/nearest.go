package options

import (
	"maps"
	"slices"
	"strings"
)

// Nearest returns the name that a misspelled word most likely means, or "".
func Nearest(word string, names []string) string {
	best, least := "", len(word)/3+2
	for _, n := range names {
		if d := distance(normal(word), normal(n)); d < least {
			best, least = n, d
		}
	}
	return best
}

// normal removes what people confuse: case, and which separator is used.
func normal(s string) string {
	return strings.NewReplacer("-", "_", " ", "_").Replace(strings.ToLower(s))
}

// distance counts the edits (insert, remove, replace) that turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

func sortedKeys(tree map[string]any) []string {
	return slices.Sorted(maps.Keys(tree))
}
